"""The inputs of a level of a tree, in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.ops.trees import MAX_ROWS

WORDS = 8  # of a set: up to 16 levels of 32 nodes one kernel serves, not one for each size


def level_inputs(
    parents: Tensor,
    above: Tensor | None,
    own: Tensor,
    behind: tuple[Tensor, int],
    position: tuple[Tensor, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``Ops.level_inputs``: visible int64 [N, W], positions and slots int64 [N].

    ``behind``: the text's length int64 [1], and the rows between it and the first node's.
    ``position``: int64 [1], and how far behind it all nodes stand.
    """
    count, words = own.shape
    assert count <= MAX_ROWS
    assert own.is_contiguous()
    assert above is None or above.is_contiguous()
    assert parents.stride(0) == 1
    sets = torch.empty_like(own)
    positions = torch.empty(count, dtype=torch.int64, device=own.device)
    places = torch.empty_like(positions)
    _footing[(1,)](
        parents, own if above is None else above, own, *behind, *position,
        sets, positions, places, count, words,
        ABOVE=above is not None, BLOCK=MAX_ROWS,
        BLOCK_WORDS=max(WORDS, triton.next_power_of_2(words)), num_warps=4,
    )  # fmt: skip
    return sets, positions, places


@triton.jit(
    do_not_specialize=["after", "ahead", "count", "words"],
    do_not_specialize_on_alignment=["parents_ptr", "length_ptr", "position_ptr"],
)
def _footing(
    parents_ptr: tl.tensor,  # int64 [N]
    above_ptr: tl.tensor,  # int64 [M, W] where ABOVE
    own_ptr: tl.tensor,  # int64 [N, W]
    length_ptr: tl.tensor,  # int64 [1]
    after: tl.tensor,
    position_ptr: tl.tensor,  # int64 [1]
    ahead: tl.tensor,
    sets_ptr: tl.tensor,  # int64 [N, W]
    positions_ptr: tl.tensor,  # int64 [N]
    places_ptr: tl.tensor,  # int64 [N]
    count: tl.tensor,
    words: tl.tensor,
    ABOVE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
) -> None:
    node, word = tl.arange(0, BLOCK), tl.arange(0, BLOCK_WORDS)[None, :]
    is_node = node < count
    inside = is_node[:, None] & (word < words)
    own = node[:, None] * words + word
    sets = tl.load(own_ptr + own, mask=inside, other=0)
    if ABOVE:
        parent = tl.load(parents_ptr + node, mask=is_node, other=0)
        sets |= tl.load(above_ptr + parent[:, None] * words + word, mask=inside, other=0)
    tl.store(sets_ptr + own, sets, mask=inside)
    tl.store(positions_ptr + node, tl.load(position_ptr) + ahead, mask=is_node)
    tl.store(places_ptr + node, tl.load(length_ptr) + after + node, mask=is_node)
