"""The two choices by which a tree grows: by Triton kernels on a GPU, by plain torch elsewhere."""

import torch
from torch import Tensor

from specx.attention import fused
from specx.decoding import tree
from specx.decoding.tree import Level, TokenTree


def best_continuations(logits: Tensor, forbidden: Tensor, weights: Tensor, nodes: int) -> Level:
    """The best ``nodes`` children over all parents.

    logits [P, V] of the draft at each parent; forbidden bool [V]: ids that are never drafted;
    weights float32 [P] of the parents' paths.
    """
    if fused.serves(logits):
        from specx.decoding import triton_select

        return triton_select.best_continuations(logits, forbidden, weights, nodes)
    logprobs = logits.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
    return tree.best_continuations(logprobs, weights, nodes)


def best_tree(root: Tensor, levels: list[Level]) -> TokenTree:
    """As ``tree.best_tree``."""
    if fused.serves(root):
        from specx.decoding import triton_select

        return triton_select.best_tree(root, levels)
    return tree.best_tree(root, levels)
