"""Storing the new rows of a layer, keys and values with one launch."""

import triton
import triton.language as tl
from torch import Tensor


def store_rows(keys: Tensor, values: Tensor, places: Tensor, key: Tensor, value: Tensor) -> None:
    """Write key and value [Hkv, T, D] into rows ``places`` (int64 [T]) of the storage of a layer.

    keys, values [Hkv, capacity, D], with equal strides; rows are contiguous in all four.
    """
    heads, rows, dim = key.shape
    assert keys.stride() == values.stride()
    assert keys.stride(2) == key.stride(2) == value.stride(2) == places.stride(0) == 1
    _put[(rows, heads)](
        keys, values, places, key, value,
        keys.stride(0), keys.stride(1), key.stride(0), key.stride(1), value.stride(0),
        value.stride(1), DIM=dim, BLOCK_DIM=triton.next_power_of_2(dim), num_warps=1,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["store_head", "key_head", "key_row", "value_head", "value_row"],
    do_not_specialize_on_alignment=["places_ptr"],
)
def _put(
    keys_ptr: tl.tensor,  # [Hkv, capacity, D]
    values_ptr: tl.tensor,  # [Hkv, capacity, D]
    places_ptr: tl.tensor,  # int64 [T]
    key_ptr: tl.tensor,  # [Hkv, T, D]
    value_ptr: tl.tensor,  # [Hkv, T, D]
    store_head: tl.tensor,
    store_row: tl.tensor,
    key_head: tl.tensor,
    key_row: tl.tensor,
    value_head: tl.tensor,
    value_row: tl.tensor,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
) -> None:
    """One row of one head."""
    row, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    dims = tl.arange(0, BLOCK_DIM)
    to = head * store_head + tl.load(places_ptr + row) * store_row + dims
    key = tl.load(key_ptr + head * key_head + row * key_row + dims, mask=dims < DIM)
    value = tl.load(value_ptr + head * value_head + row * value_row + dims, mask=dims < DIM)
    tl.store(keys_ptr + to, key, mask=dims < DIM)
    tl.store(values_ptr + to, value, mask=dims < DIM)
