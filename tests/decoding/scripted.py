"""Drafters that propose what a test tells them to, put in the place of the method's own."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specx.decoding import methods
from specx.decoding.drafter import Drafter
from specx.decoding.target import Target
from specx.ops.trees import Path, TokenTree
from specx.records import PrefillProgress

Guess = Callable[[int], int]  # place in the output -> the token that is proposed there


class Scripted(Drafter):
    """Proposes one chain of ``levels`` tokens a step; notes what it was told."""

    retrieve_every = 2

    def __init__(self, levels: int, guess: Guess) -> None:
        self.levels, self.guess = levels, guess
        self.read: list[int] = []
        self.roots: list[int] = []
        self.committed: list[list[int]] = []
        self.retrieved_after: list[int] = []  # steps

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        self.read = prompt.tolist()
        assert target.cache.committed == len(self.read)
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        self.roots += root.tolist()
        place = sum(len(tokens) for tokens in self.committed)
        chain = [self.guess(place + i) for i in range(self.levels)]
        return chain_tree(root, chain)

    def commit(self, path: Path) -> None:
        self.committed.append(path.tokens[: int(path.count)].tolist())

    def retrieve(self, target: Target) -> None:  # noqa: ARG002
        self.retrieved_after.append(len(self.committed) - 1)


def chain_tree(root: Tensor, chain: list[int]) -> TokenTree:
    rows = len(chain) + 1
    depths = torch.arange(rows)
    return TokenTree(
        torch.cat([root, torch.tensor(chain, dtype=torch.int64)]),
        (depths - 1).clamp(min=0),
        depths,
        torch.ones(rows, dtype=torch.bool),
        levels=len(chain),
    )


def use(monkeypatch: pytest.MonkeyPatch, drafter: Scripted) -> Scripted:
    """Let ``decode`` draft with ``drafter``, whatever the method."""
    monkeypatch.setattr(methods, "make_drafter", lambda *_: drafter)
    of = methods.Pair.facts.fget
    facts = property(lambda pair: replace(of(pair), has_draft=True))
    monkeypatch.setattr(methods.Pair, "facts", facts)
    return drafter
