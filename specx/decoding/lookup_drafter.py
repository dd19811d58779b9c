"""Drafting from the text so far alone: no draft model, no draft time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.decoding.branches import chain_tree
from specx.decoding.drafter import Drafter
from specx.decoding.lookup import REACH, Lookup
from specx.decoding.target import Target
from specx.ops.trees import Path, TokenTree, root_only
from specx.profile import TreeSettings
from specx.records import PrefillProgress


class LookupDrafter(Drafter):
    """Proposes the one chain that lookup finds."""

    def __init__(self, tree: TreeSettings, max_tokens: int, device: torch.device) -> None:
        """``max_tokens``: the longest that prompt and output can become together."""
        self.levels = max(tree.depth, REACH)
        self._lookup = Lookup(self.levels, max_tokens, device)
        self._threshold = tree.threshold

    def begin(self) -> bool:
        return True  # ``prefill`` does it

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        self._lookup.begin(prompt)
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        return lookup_tree(self._lookup, root, self._threshold)

    def commit(self, path: Path) -> None:
        self._lookup.append(path.tokens, path.count)


def lookup_tree(lookup: Lookup, root: Tensor, threshold: float) -> TokenTree:
    """Return lookup's chain behind ``root`` int64 [1].

    On a CPU without the end that is accepted with a probability below ``threshold``, since there
    every row costs time, and a look none.
    """
    tokens, weights = lookup.chain, lookup.weights
    if root.device.type == "cpu" and threshold > 0:
        count = int((weights.exp() >= threshold).sum())
        tokens, weights = tokens[:count], weights[:count]
    return chain_tree(root, tokens, weights) if len(tokens) else root_only(root)
