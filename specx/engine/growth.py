"""What happens between the draft's passes while a tree grows: by Triton kernels on a GPU, by plain
torch elsewhere."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specx.engine.kv_cache import PreallocatedCache
from specx.kernels import fused
from specx.kernels import trees as tree
from specx.kernels.trees import Level, TokenTree
from specx.models.call import Rows


def best_continuations(logits: Tensor, forbidden: Tensor, weights: Tensor, nodes: int) -> Level:
    """The best ``nodes`` children over all parents.

    logits [P, V] of the draft at each parent; forbidden bool [V]: ids that are never drafted;
    weights float32 [P] of the parents' paths.
    """
    if fused.serves(logits):
        from specx.kernels.triton import select as triton_select

        return triton_select.best_continuations(logits, forbidden, weights, nodes)
    logprobs = logits.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
    return tree.best_continuations(logprobs, weights, nodes)


@dataclass(frozen=True)
class Footing:
    """What the N nodes of a level stand on: the rows of a cache that each of them sees, int64
    [N, W] (``AttentionCall.visible``), its position in the text, int64 [N], and its own row."""

    visible: Tensor
    positions: Tensor
    rows: Rows


def footing(
    level: Level, above: Footing | None, own: Tensor, depth: int, cache: PreallocatedCache
) -> Footing:
    """Of the nodes of ``level``, ``depth`` levels below the root, that are read next.

    ``above``: what their parents stand on; None where they see no node but themselves. ``own``
    int64 [N, W]: the sets in which each node is alone.
    """
    if fused.serves(own):
        from specx.kernels.triton import level_inputs as triton_footing

        visible, positions, places = triton_footing.footing(
            level.parents, None if above is None else above.visible, own,
            (cache.length, cache.scratch), (cache.next_position, depth - 1),
        )  # fmt: skip
        return Footing(visible, positions, Rows(cache.storage, places))
    # Without parents a copy: what compiled layers get is always made in inference mode.
    visible = own.clone() if above is None else above.visible[level.parents] | own
    positions = (cache.next_position + (depth - 1)).expand(len(own))
    return Footing(visible, positions, cache.next_rows(len(own)))


def best_tree(root: Tensor, levels: list[Level]) -> TokenTree:
    """As ``tree.best_tree``."""
    if fused.serves(root):
        from specx.kernels.triton import select as triton_select

        return triton_select.best_tree(root, levels)
    return tree.best_tree(root, levels)
