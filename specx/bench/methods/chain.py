"""Classic speculative decoding: a chain of drafts."""

from dataclasses import replace

import torch
from torch import Tensor

from specx.bench.runs import draft_model
from specx.decoding.lookup import chain_tree
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.ops.trees import TokenTree
from specx.profile import Settings


class ChainDrafter(ModelDrafter):
    """Drafts a chain with one token per level of the tree."""

    def __init__(self, settings: Settings, pair: Pair, max_tokens: int) -> None:
        """Raises UsageError if the draft is a head."""
        draft, allowed = draft_model(pair, "chain")
        tree = settings.tree.changed(width=1, threshold=0)
        plan = replace(DraftPlan.of(settings), tree=tree, reserved=tree.nodes - 1)
        super().__init__(draft, allowed, plan, max_tokens)
        self._certain = torch.zeros(tree.depth, device=draft.device)

    def grow(self, root: Tensor) -> TokenTree:
        tokens = torch.cat([level.tokens for level in self.grow_levels()])
        return chain_tree(root, tokens, self._certain)
