"""Copying rows behind the text, of all layers, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

FEW_ROWS = 32  # up to here one kernel serves, not one for each number of levels of a tree
MOST_ROWS = 64  # of a program, which holds all of them before it writes the first


def keep_rows(storage: Tensor, length: Tensor, path: Tensor) -> None:
    """Compute ``Ops.keep_rows`` of a storage that is contiguous."""
    layers, _, heads, capacity, dim = storage.shape
    assert len(path) <= MOST_ROWS
    assert storage.is_contiguous()
    assert path.stride(0) == 1
    _move[(layers * 2 * heads,)](
        storage, storage, length, length, path, path, len(path), capacity, capacity,
        PATH=True, BLOCK=_block(len(path)),
        DIM=dim, BLOCK_DIM=triton.next_power_of_2(dim), num_warps=4 if dim <= 256 else 8,
    )  # fmt: skip


def append_rows(
    source: Tensor, target: Tensor, lengths: tuple[Tensor, Tensor], positions: Tensor, count: int
) -> None:
    """Copy the ``count`` rows behind the text of ``source`` behind that of ``target``, and note
    their rows in ``source`` in the same places of ``positions``.

    source, target [layers, 2, Hkv, capacity, D], each with its own capacity, contiguous; lengths
    int64 [1] each, of the texts; positions int64 [capacity of the target].
    """
    layers, _, heads, capacity, dim = source.shape
    block = min(MOST_ROWS, _block(count))
    assert source.is_contiguous()
    assert target.is_contiguous()
    _move[(layers * 2 * heads, triton.cdiv(count, block))](
        source, target, *lengths, positions, positions, count, capacity, target.shape[3],
        PATH=False, BLOCK=block,
        DIM=dim, BLOCK_DIM=triton.next_power_of_2(dim), num_warps=4,
    )  # fmt: skip


def _block(rows: int) -> int:
    return max(FEW_ROWS, triton.next_power_of_2(rows))


@triton.jit(
    do_not_specialize=["count", "capacity", "room"],
    do_not_specialize_on_alignment=["length_ptr", "filled_ptr", "path_ptr", "positions_ptr"],
)
def _move(
    source_ptr: tl.tensor,  # [layers, 2, Hkv, capacity, D]
    target_ptr: tl.tensor,  # [layers, 2, Hkv, room, D]
    length_ptr: tl.tensor,  # int64 [1], of the source
    filled_ptr: tl.tensor,  # int64 [1], of the target
    path_ptr: tl.tensor,  # int64 [count] where PATH
    positions_ptr: tl.tensor,  # int64 [room] where not
    count: tl.tensor,
    capacity: tl.tensor,
    room: tl.tensor,
    PATH: tl.constexpr,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
) -> None:
    """A block of rows: keys or values of one head in one layer."""
    head = tl.program_id(0).to(tl.int64)
    nth = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, BLOCK_DIM)[None, :]
    is_row = nth < count
    inside = is_row[:, None] & (dims < DIM)
    length, filled = tl.load(length_ptr), tl.load(filled_ptr)
    row = length + (tl.load(path_ptr + nth, mask=is_row, other=0) if PATH else nth)
    to = filled + nth
    if PATH:  # storage may be a ring
        row, to = row.to(tl.int32) % capacity, to.to(tl.int32) % capacity
    rows = tl.load(source_ptr + (head * capacity + row[:, None]) * DIM + dims, mask=inside)
    tl.debug_barrier()  # what some threads write others have read
    tl.store(target_ptr + (head * room + to[:, None]) * DIM + dims, rows, mask=inside)
    if not PATH and tl.program_id(0) == 0:
        tl.store(positions_ptr + to, row, mask=is_row)
