"""One step of speculative decoding, top to bottom. Plain decoding is the step of a bare root."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.decoding.accept import Path, accept
from specx.decoding.drafter import Drafter
from specx.decoding.sampling import Sampler
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.target import Target
from specx.records import Step


@dataclass
class DecodingState:
    """Everything that lives and dies with one document.

    ``root`` int64 [1]: the last emitted token, which the target has not read yet. ``emitted``:
    tokens of the output so far, the root among them.
    """

    target: Target
    drafter: Drafter
    sampler: Sampler
    watch: Stopwatch
    root: Tensor
    emitted: int = 1


def decoding_step(state: DecodingState) -> Step:
    """Draft a tree, verify it in one forward pass, keep what the target agrees with."""
    started = time.perf_counter()
    if state.drafter.retrieval_due():
        with state.watch.part("retrieval"):
            state.drafter.retrieve(state.target)
    with state.watch.part("drafting"):
        tree = state.drafter.grow(state.root)
    with state.watch.part("verification"):
        logits = state.target.score(tree)
        choices = state.sampler.choose(logits, state.emitted + tree.depths)
        path = accept(tree, choices)
        tokens = read(path)  # the one look of the host at what the device did
    with state.watch.part("keep"):
        state.target.keep(path, len(tokens))
        state.drafter.commit(path, len(tokens))
        state.root = path.tokens[len(tokens) - 1 : len(tokens)]
        state.emitted += len(tokens)
    return Step(tuple(tokens), tree.nodes, len(tokens) - 1, time.perf_counter() - started)


def read(path: Path) -> list[int]:
    """The emitted tokens, copied to the host in one piece."""
    count, *tokens = torch.cat([path.count[None], path.tokens]).tolist()
    return tokens[:count]
