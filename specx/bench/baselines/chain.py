"""Classic speculative decoding: a chain of drafts, each the draft's best guess behind the last."""

import torch
from torch import Tensor

from specx.engine.growth import Footing, best_continuations, footing
from specx.engine.model_drafter import ModelDrafter
from specx.kernels.trees import Level, TokenTree


class ChainDrafter(ModelDrafter):
    """Drafts one token a level, always as many as the tree has levels.

    The plan's tree must continue one node a level (``width`` 1).
    """

    def grow(self, root: Tensor) -> TokenTree:
        grower, cache = self.grower, self.cache.working
        levels = [self._best(self.read_pending())]
        ground: Footing | None = None
        while len(levels) < self.levels:
            ground = footing(levels[-1], ground, grower.own[len(levels) - 1], len(levels), cache)
            levels.append(self._best(grower.read(levels[-1], ground, cache)))
        cache.drop_scratch()
        return _chain(root, levels)

    def _best(self, logits: Tensor) -> Level:
        weight = torch.zeros(1, device=logits.device)
        return best_continuations(logits, self.grower.forbidden, weight, nodes=1)


def _chain(root: Tensor, levels: list[Level]) -> TokenTree:
    """The tree in which every row hangs on the one before."""
    tokens = torch.cat([root, *(level.tokens for level in levels)])
    rows = torch.arange(len(tokens), device=root.device)
    return TokenTree(
        tokens=tokens,
        parents=(rows - 1).clamp(min=0),
        depths=rows,
        valid=torch.ones_like(rows, dtype=torch.bool),
        levels=len(levels),
    )
