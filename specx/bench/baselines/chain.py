"""Classic speculative decoding: a chain of drafts, each the draft's best guess behind the last."""

import torch
from torch import Tensor

from specx.decoding.model_drafter import ModelDrafter
from specx.ops.trees import Level, LevelInputs, TokenTree


class ChainDrafter(ModelDrafter):
    """Drafts one token a level, always as many as the tree has levels.

    The plan's tree must continue one node a level (``width`` 1).
    """

    def grow(self, root: Tensor) -> TokenTree:
        grower, cache = self.grower, self.cache.working
        levels = [self._best(self.read_pending())]
        inputs: LevelInputs | None = None
        while len(levels) < self.levels:
            own = grower.own[len(levels) - 1]
            logits, inputs = grower.read(levels[-1], inputs, own, len(levels), cache)
            levels.append(self._best(logits))
        return unbranched_tree(torch.cat([root, *(level.tokens for level in levels)]))

    def _best(self, logits: Tensor) -> Level:
        weight = torch.zeros(1, device=logits.device)
        return self.model.ops.best_continuations(logits, self.grower.forbidden, weight, nodes=1)


def unbranched_tree(tokens: Tensor) -> TokenTree:
    """Return the tree in which every token (int64 [T], the root first) hangs on the one before."""
    rows = torch.arange(len(tokens), device=tokens.device)
    valid = torch.ones_like(rows, dtype=torch.bool)
    return TokenTree(tokens, (rows - 1).clamp(min=0), rows, valid, levels=len(tokens) - 1)
