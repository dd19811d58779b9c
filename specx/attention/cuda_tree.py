"""Hybrid tree attention in CUDA C++ where many rows share a key head: Hopper.

With 64 nodes and several heads to each key head attention is limited by its products, not by
reading, and the tensor cores have to be busy while weights are computed. Triton's compiler does not
arrange that; ``cuda_tree.cu`` does.
"""

from ctypes import c_float, c_int, c_uint64
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specx.cuda.compiler import compiled
from specx.cuda.driver import CudaError, Kernel, TensorMap, is_hopper, load

SOURCE = Path(__file__).with_suffix(".cu")
DIM = 128
ROWS = 128  # of a block, in two warp groups
COLUMNS = 128  # that it takes at a time
THREADS = 3 * 128
SHARED = 2 * DIM * (ROWS + 6 * COLUMNS) + 1024  # queries, six stages, what alignment may take


def suits(q: Tensor, keys: Tensor, values: Tensor, multiprocessors: int) -> bool:
    """Whether arguments of ``triton_tree.tree_attention`` are for this, and the device is."""
    heads, nodes, dim = q.shape
    rows = heads // len(keys) * nodes
    return (
        q.is_cuda
        and q.dtype in (torch.float16, torch.bfloat16)
        and dim == DIM
        and rows >= ROWS
        and splits(rows, len(keys), multiprocessors) > 1  # parts are merged
        and all(
            each.stride(0) % 8 == each.stride(1) % 8 == each.data_ptr() % 16 == 0
            for each in (q, keys, values)
        )
        and _compiles(keys.dtype, keys.device)
    )


def splits(rows: int, kv_heads: int, multiprocessors: int) -> int:
    """Programs along the columns: one on each multiprocessor."""
    return max(1, multiprocessors // (-(-rows // ROWS) * kv_heads))


def attend_in_parts(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    prefix: Tensor,
    visible: Tensor,
    scale: float,
    part_out: Tensor,
    part_lse: Tensor,
) -> None:
    """The parts of ``triton_tree.tree_attention``, whose arguments these are.

    scale: of the scores, in base 2; part_out [splits, Hq·T, D] in q's dtype; part_lse float32
    [splits, Hq·T], in base 2.
    """
    heads, nodes, _ = q.shape
    kv_heads, rows = len(keys), heads // len(keys) * nodes
    arguments = [
        TensorMap(keys, (1, COLUMNS, 64)),
        TensorMap(values, (1, COLUMNS, 64)),
        *(c_uint64(each.data_ptr()) for each in (q, prefix, visible, part_out, part_lse)),
        c_float(scale),
        *map(c_int, (nodes, rows, visible.shape[1])),
        *map(c_uint64, (q.stride(0), q.stride(1), visible.stride(0), visible.stride(1))),
    ]
    grid = (-(-rows // ROWS), kv_heads, len(part_out))
    with torch.cuda.device(q.device):
        _kernel(q.dtype, q.device).launch(grid, THREADS, arguments)


@cache
def _compiles(dtype: torch.dtype, device: torch.device) -> bool:
    if not is_hopper(device):
        return False
    try:
        _kernel(dtype, device)
    except CudaError:
        return False  # Triton does it, too
    return True


@cache
def _kernel(dtype: torch.dtype, device: torch.device) -> Kernel:
    binary = compiled(SOURCE, {"HALF": dtype == torch.float16})
    with torch.cuda.device(device):
        return load(binary, "attend", SHARED)
