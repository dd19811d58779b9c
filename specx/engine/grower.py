"""Growing a tree level by level with a model, on a cache that holds the text and the root."""

import torch
from torch import Tensor

from specx.engine.forward import forward
from specx.engine.growth import Footing, best_continuations, best_tree, footing
from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.trees import Level, TokenTree, expected_gain
from specx.models.call import AttentionCall, single_sets, words_for
from specx.models.load import LoadedModel
from specx.profile import TreeSettings


class TreeGrower:
    """Grows trees of one shape.

    ``scratch``: rows that it needs behind the text of a cache. ``forbidden``: bool [V]. ``own``:
    for each level but the last, the sets (``AttentionCall``) in which each node is alone.
    """

    def __init__(self, model: LoadedModel, allowed: Tensor, tree: TreeSettings) -> None:
        """``allowed``: bool [V], ids that may be proposed."""
        self.model, self.tree = model, tree
        self.scratch = tree.depth * tree.continued
        self.forbidden = ~allowed
        self._certain = torch.zeros(1, device=model.device)  # the log-probability of the root
        width = tree.continued
        words = words_for((tree.depth - 1) * width)
        # A level sees its ancestors, which are found as it grows, and each node sees itself.
        self.own = [
            single_sets(level * width, width, words, model.device)
            for level in range(tree.depth - 1)
        ]

    def grow(self, root: Tensor, logits: Tensor, cache: PreallocatedCache) -> TokenTree:
        """A tree behind ``root`` int64 [1], the last token of the text in ``cache``.

        ``logits`` [1, V]: after the root.
        """
        return best_tree(root, self.grow_levels(logits, cache))

    def grow_levels(self, logits: Tensor, cache: PreallocatedCache) -> list[Level]:
        """The levels that a tree is picked from: at most ``depth``. ``logits`` as above."""
        plan = self.tree
        levels = [best_continuations(logits, self.forbidden, self._certain, plan.nodes)]
        gain = expected_gain(levels, plan.nodes) if self._stops_growing else self._certain
        ground: Footing | None = None
        while len(levels) < plan.depth:
            parents = levels[-1].best(plan.continued)
            ground = footing(parents, ground, self.own[len(levels) - 1], len(levels), cache)
            logits = self.read(parents, ground, cache)
            levels.append(best_continuations(logits, self.forbidden, parents.weights, plan.nodes))
            if self._stops_growing:
                before, gain = gain, expected_gain(levels, plan.nodes)
                if gain - before < plan.threshold:
                    break
        cache.drop_scratch()
        return levels

    @property
    def _stops_growing(self) -> bool:
        """Whether a tree may have fewer levels than it could. To know, the host must look into a
        tree that is still growing; on a GPU that costs more than the level it may save."""
        return self.tree.threshold > 0 and self.model.device.type == "cpu"

    def read(self, level: Level, ground: Footing, cache: PreallocatedCache) -> Tensor:
        """Read the nodes of a level where they stand; logits [N, V] after each."""
        call = AttentionCall(
            "tree",
            past=cache.scratch,
            prefix=cache.length,
            visible=ground.visible,
            rows=ground.rows,
        )
        return forward(self.model, level.tokens, ground.positions, cache, call)
