"""Hybrid tree attention in one pass over the KV cache, as kernels for CUDA graphs.

The committed prefix needs no mask, the tree's own rows do: one kernel goes over both. The queries
of the heads that share a key head are packed as rows (head in group × node), and the columns are
split over programs (flash decoding), whose partial results a second kernel merges by log-sum-exp.
Nothing is read back to the host, and grids depend on shapes only, so a captured graph serves every
length: kernels read the length from the device. Lengths, capacities and widths are run-time
arguments that never compile anything anew; for tree sizes there are three forms of the first
kernel, by the rows of a program. Where many rows share a key head, on Hopper,
``hopper/tree_attention.py`` takes its place.

In a window blocks begin with the first row that a query of the program sees, and a row lies where a
ring has it. A sink is what the first split of a row has seen before it begins.

Source: SpecExtend, section on hybrid tree attention.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.ops.chunks import Grid
from specx.ops.triton import programmatic_launch
from specx.ops.triton.programmatic_launch import wait
from specx.ops.triton.tree_inputs import WORD, TreeInputs

MOST_SPLITS = 64  # the merge holds all parts of a row at once
MERGED = (4, 8, 16, 32, MOST_SPLITS)  # parts that its usual forms hold
LOG2_E = math.log2(math.e)
LN_2 = tl.constexpr(math.log(2))


@dataclass(frozen=True)
class Launch:
    """The spread of tree attention over the device.

    ``splits``: programs along the columns. ``block_rows``, ``block_columns``: the tile of scores
    that a program holds, powers of 2 from 16. ``warps``, ``stages``: Triton's ``num_warps`` and
    ``num_stages``. ``masked_cost``: what a block under a mask counts when columns are split, in
    blocks without.
    """

    splits: int
    block_rows: int
    block_columns: int
    warps: int
    stages: int
    masked_cost: int = 1


@cache
def plan(
    rows: int,
    kv_heads: int,
    capacity: int,
    head_dim: int,
    itemsize: int,
    multiprocessors: int,
    shared_memory: int,
) -> Launch:
    """Plan the launch for ``rows`` packed rows (head in group × node) per key head.

    ``capacity`` bounds the columns, ``itemsize`` is the bytes of one element of the cache,
    ``shared_memory`` those that a program may have.
    """
    width = triton.next_power_of_2(head_dim)
    if itemsize == 4:  # no tensor cores: the products are unrolled into registers
        block_rows = 32 if rows > 16 and width <= 64 else 16
        block_columns, warps, stages = 32 if width <= 128 else 16, 4 if width <= 256 else 8, 2
    elif rows <= 16 and _fits(128, 3, width * itemsize, shared_memory):
        return _plan_of_few_rows(kv_heads, capacity, multiprocessors)
    else:
        # Of 256 rows, blocks of 128 and 256 read less and take longer: measured on an H200.
        block_rows = max(16, min(64, triton.next_power_of_2(rows)))
        block_columns = 64 if width <= 128 else 32
        warps, stages = 4, 3 if width <= 128 else 2
        if width > 256:  # a tile of results fills the registers of twice as many threads
            block_rows, block_columns, warps = min(32, block_rows), 16, 8
    programs = -(-rows // block_rows) * kv_heads
    most = -(-capacity // (2 * block_columns))  # fewer than two blocks each: not worth a merge
    splits = max(1, min(2 * multiprocessors // programs, most, MOST_SPLITS))
    return Launch(splits, block_rows, block_columns, warps, stages)


def _plan_of_few_rows(kv_heads: int, capacity: int, multiprocessors: int) -> Launch:
    """Reading is all there is to do: one program on each multiprocessor, far ahead with its loads.

    Twice as many with half as much read no faster, and the merge has twice as many parts.
    """
    most = -(-capacity // WORD)  # merging so few rows costs little
    splits = max(1, min(multiprocessors // kv_heads, most, MOST_SPLITS))
    return Launch(splits, block_rows=16, block_columns=128, warps=4, stages=3, masked_cost=2)


def _fits(block_columns: int, stages: int, row: int, shared_memory: int) -> bool:
    """Return True if a program has room for the blocks it reads ahead, of rows of ``row`` bytes."""
    read_ahead = 2 * (stages - 1) * block_columns * row  # keys and values
    return read_ahead + 16 * 1024 <= shared_memory


def plan_for(inputs: TreeInputs) -> Launch:
    """Plan the launch for these inputs on their device."""
    q = inputs.q
    limits = limits_of(q.device)
    return plan(inputs.rows, inputs.kv_heads, inputs.reach, inputs.dim, q.itemsize, *limits)


def in_parts(
    inputs: TreeInputs, splits: int, attend: Callable[[TreeInputs, Tensor, Tensor], None]
) -> tuple[Tensor, Tensor]:
    """Have ``attend`` attend to ``splits`` parts of the columns, and merge what it wrote.

    Returns (out [T, Hq, D] in q's dtype, lse [Hq, T] float32, natural logarithm).
    """
    q = inputs.q
    heads, nodes, dim = q.shape
    out = torch.empty((nodes, heads, dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((heads, nodes), dtype=torch.float32, device=q.device)
    part_out, part_lse = out, lse
    if splits > 1:
        # Half precision halves the traffic of the merge, and costs as much as rounding the result
        # does; the weights of the merge come from ``part_lse`` and must stay float32.
        part_out = torch.empty((splits, heads * nodes, dim), dtype=q.dtype, device=q.device)
        part_lse = torch.empty((splits, heads * nodes), dtype=torch.float32, device=q.device)
    attend(inputs, part_out, part_lse)
    if splits > 1:
        _merge_parts(part_out, part_lse, out, lse)
    return out, lse


def _merge_parts(part_out: Tensor, part_lse: Tensor, out: Tensor, lse: Tensor) -> None:
    """Merge part_out [splits, Hq·T, D] and part_lse [splits, Hq·T] into out [T, Hq, D].

    lse [Hq, T] is made of them, too.
    """
    splits, rows, dim = part_out.shape
    _compile_merges(dim, out.dtype, out.device)
    most = max(MERGED[0], triton.next_power_of_2(splits))
    options = _merge_options(dim, most, out.device)
    _merge[(rows,)](part_out, part_lse, out, lse, *lse.shape[::-1], splits, **options)


@cache
def _compile_merges(dim: int, dtype: torch.dtype, device: torch.device) -> None:
    """Compile the merge's usual forms with the first: another tree must not wait for a compiler.

    Only many rows of a single key head have more parts.
    """
    for most in MERGED:
        options = _merge_options(dim, most, device)
        _merge.warmup(dtype, torch.float32, dtype, torch.float32, 1, 1, 2, grid=(1,), **options)


@cache
def _merge_options(dim: int, most: int, device: torch.device) -> dict[str, int | bool]:
    """Return the options of a merge of at most ``most`` parts."""
    block_dim = triton.next_power_of_2(dim)
    return {
        "DIM": dim,
        "BLOCK_DIM": block_dim,
        "BLOCK_SPLITS": most,
        "num_warps": max(1, min(8, most * block_dim // 1024)),
        **programmatic_launch.options(device),
    }


def attend_in_parts(inputs: TreeInputs, part_out: Tensor, part_lse: Tensor, launch: Launch) -> None:
    """Attend to each part of the columns; of a single part, what it writes is the result.

    part_out [splits, Hq·T, D] in q's dtype; part_lse float32 [splits, Hq·T], in base 2.
    """
    q, keys, values, visible = inputs.q, inputs.keys, inputs.values, inputs.visible
    scale, slope = scale_and_slope(inputs.scale, inputs.softcap)
    # Programs that read the same keys come one after another: all but the first read them from L2.
    grid = (triton.cdiv(inputs.rows, launch.block_rows), inputs.kv_heads, launch.splits)
    _attend[grid](
        q, keys, values, inputs.prefix, visible, inputs.sinks, part_out, part_lse, scale, slope,
        inputs.window, inputs.nodes, inputs.rows, inputs.heads, keys.shape[1], visible.shape[1],
        q.stride(0), q.stride(1), keys.stride(0), keys.stride(1), values.stride(0),
        values.stride(1), visible.stride(0), visible.stride(1),
        SPLIT=launch.splits > 1, DIM=inputs.dim, BLOCK_DIM=triton.next_power_of_2(inputs.dim),
        BLOCK_M=launch.block_rows, BLOCK_N=launch.block_columns,
        BLOCK_MASKED=min(WORD, launch.block_columns), MASKED_COST=launch.masked_cost,
        WORDS=1 if inputs.window is None else triton.next_power_of_2(visible.shape[1]),
        WINDOWED=inputs.window is not None, NARROW=inputs.is_narrow, CAPPED=slope is not None,
        SINKS=inputs.sinks is not None, num_warps=launch.warps, num_stages=launch.stages,
        **programmatic_launch.options(q.device),
    )  # fmt: skip


def chunk_scores(
    query: Tensor,
    lse: Tensor,
    keys: Tensor,
    length: Tensor,
    scaling: float,
    grid: Grid,
    softcap: float | None = None,
) -> Tensor:
    """Compute ``Ops.chunk_scores``; lse is float32, D a multiple of 16."""
    (heads, dim), (kv_heads, capacity, _) = query.shape, keys.shape
    chunk, short = grid.chunk, grid.short
    chunks = triton.cdiv(capacity + short, chunk)
    out = torch.empty(chunks, dtype=torch.float32, device=query.device)
    assert heads % kv_heads == 0
    assert dim % 16 == 0
    assert query.stride(1) == keys.stride(2) == 1
    group = heads // kv_heads
    columns = 64 if query.itemsize == 2 else 16  # what a program holds at once, in registers
    columns = columns if dim <= 256 else min(columns, 32)
    scale, slope = scale_and_slope(scaling * LOG2_E, softcap)
    piece = min(columns, triton.next_power_of_2(chunk))
    block_chunks = columns // piece
    _score_chunks[(triton.cdiv(chunks, block_chunks),)](
        query, lse, keys, length, out, scale, slope,
        heads, group, chunk, short, chunks,
        query.stride(0), lse.stride(0), keys.stride(0), keys.stride(1),
        DIM=dim, BLOCK_DIM=triton.next_power_of_2(dim),
        GROUP=max(16, triton.next_power_of_2(group)),
        PIECE=piece, BLOCK_CHUNKS=block_chunks, CAPPED=softcap is not None,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def scale_and_slope(scale: float, softcap: float | None) -> tuple[float, float | None]:
    """Return the factor of scores in base 2 and, where they have a cap, of what is in the tanh.

    ``scale``: of scores without a cap. Those with one are the tanh, which ``capped`` computes from
    products times the second factor, times the first.
    """
    return (scale, None) if softcap is None else (softcap * LOG2_E, 2 * scale / softcap)


@cache
def limits_of(device: torch.device) -> tuple[int, int]:
    """Return a device's multiprocessors, and the bytes of shared memory of one program."""
    if device.type != "cuda":
        return 4, 2**18  # Triton's interpreter: enough programs for several splits
    known = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return known["multiprocessor_count"], known["max_shared_mem"]


@triton.jit(
    do_not_specialize=[
        "window",
        "nodes",
        "rows",
        "heads",
        "capacity",
        "words",
        "visible_node",
        "visible_word",
    ],
    do_not_specialize_on_alignment=["prefix_ptr", "visible_ptr", "sinks_ptr", "lse_ptr"],
)
def _attend(
    q_ptr: tl.tensor,  # [Hq, T, D]
    k_ptr: tl.tensor,  # [Hkv, capacity, D]
    v_ptr: tl.tensor,  # [Hkv, capacity, D]
    prefix_ptr: tl.tensor,  # int64, one element
    visible_ptr: tl.tensor,  # int64 [T, W]
    sinks_ptr: tl.tensor,  # float32 [Hq], where SINKS
    out_ptr: tl.tensor,  # [T, Hq, D], or [splits, Hq·T, D] where SPLIT
    lse_ptr: tl.tensor,  # [Hq, T], or [splits, Hq·T] in base 2 where SPLIT
    scale: tl.tensor,  # of the scores, in base 2
    slope: tl.tensor,  # of what is in the tanh, where CAPPED: as of ``capped``
    window: tl.tensor,  # where WINDOWED
    nodes: tl.tensor,
    rows: tl.tensor,
    heads: tl.tensor,
    capacity: tl.tensor,
    words: tl.tensor,
    q_head: tl.tensor,
    q_node: tl.tensor,
    k_head: tl.tensor,
    k_row: tl.tensor,
    v_head: tl.tensor,
    v_row: tl.tensor,
    visible_node: tl.tensor,
    visible_word: tl.tensor,
    SPLIT: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_MASKED: tl.constexpr,
    MASKED_COST: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWED: tl.constexpr,
    NARROW: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """One block of packed rows of one key head, over one split of the columns.

    The columns are numbered in blocks: first the full blocks of the prefix, which end where the
    prefix ends, then, under a mask, the tree's own rows and what is left of the prefix at its
    beginning. So bits and blocks of the tree's rows are aligned, and most blocks need no mask.
    The beginning is that of the windows: which ends later for a query with more ancestors.
    """
    kv_head, split, splits = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head, node = kv_head * (rows // nodes) + row // nodes, row % nodes
    dims = tl.arange(0, BLOCK_DIM)
    is_element = (row < rows)[:, None] & (dims < DIM)[None, :]

    wait(EARLY)
    prefix = tl.load(prefix_ptr).to(tl.int32)
    q = tl.load(
        q_ptr + head.to(tl.int64)[:, None] * q_head + node[:, None] * q_node + dims[None, :],
        mask=is_element,
        other=0.0,
    )
    k_ptr += kv_head.to(tl.int64) * k_head
    v_ptr += kv_head.to(tl.int64) * v_head

    depth, least = row, row
    if WINDOWED:
        sets_ptr = visible_ptr + node * visible_node
        depth = _sizes(sets_ptr, visible_word, words, row < rows, WORDS)
        least = prefix + depth - window  # the first row of the text that a query sees
        begins = tl.min(tl.where(row < rows, least, prefix), 0)
        begins = tl.minimum(tl.maximum(begins, 0), prefix)
        ends = tl.maximum(tl.max(tl.where(row < rows, least, 0), 0), 0)
        full = (prefix - tl.minimum(ends, prefix)) // BLOCK_N
        rest = prefix - full * BLOCK_N
        left = rest - begins
    else:
        begins = 0
        rest = prefix % BLOCK_N
        full = prefix // BLOCK_N
        left = rest
    own = words * (64 // BLOCK_MASKED)
    work = full + (own + tl.cdiv(left, BLOCK_MASKED)) * MASKED_COST
    # By the length as it is now, not by the capacity: splits differ by one block at most.
    begin = (work.to(tl.int64) * split // splits).to(tl.int32)
    end = (work.to(tl.int64) * (split + 1) // splits).to(tl.int32)
    acc = tl.zeros([BLOCK_M, BLOCK_DIM], dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    highest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    if SINKS:  # which split has it does not matter
        sink = tl.load(sinks_ptr + head, mask=row < rows, other=0.0) / LN_2
        highest = tl.where(split == 0, sink, highest)
        total += tl.where(split == 0, 1.0, 0.0)
    acc, total, highest = _full_blocks(
        q, k_ptr, v_ptr, k_row, v_row, rest, begin, tl.minimum(end, full), capacity,
        acc, total, highest, scale, slope, DIM, BLOCK_DIM, BLOCK_N, WINDOWED, CAPPED,
    )  # fmt: skip
    acc, total, highest = _masked_blocks(
        q, k_ptr, v_ptr, k_row, v_row, begins, rest,
        tl.cdiv(tl.maximum(begin, full) - full, MASKED_COST),
        tl.cdiv(end - full, MASKED_COST),
        visible_ptr + node * visible_node, visible_word, row, rows, own, prefix, capacity,
        depth, least, window,
        acc, total, highest, scale, slope,
        DIM, BLOCK_DIM, BLOCK_MASKED, WORDS, WINDOWED, NARROW, CAPPED,
    )  # fmt: skip

    # A row that saw no column of this split: out 0, lse −inf, weight 0 in the merge.
    total = tl.where(total == 0.0, 1.0, total)
    acc = acc / total[:, None]
    lse = highest + tl.log2(total)
    packed = kv_head * rows + row  # head · T + node
    if SPLIT:
        out_row = split.to(tl.int64) * heads * nodes + packed
        tl.store(lse_ptr + out_row, lse, mask=row < rows)
    else:
        out_row = node.to(tl.int64) * heads + head
        tl.store(lse_ptr + packed, lse * LN_2, mask=row < rows)
    tl.store(
        out_ptr + out_row[:, None] * DIM + dims[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=is_element,
    )


@triton.jit
def _full_blocks(
    q: tl.tensor,  # [M, D]
    k_ptr: tl.tensor,  # [capacity, D]
    v_ptr: tl.tensor,  # [capacity, D]
    k_row: tl.tensor,
    v_row: tl.tensor,
    rest: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    capacity: tl.tensor,
    acc: tl.tensor,
    total: tl.tensor,
    highest: tl.tensor,
    scale: tl.tensor,
    slope: tl.tensor,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RING: tl.constexpr,
    CAPPED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Blocks of the prefix, from column ``rest`` on: every query sees them."""
    dims = tl.arange(0, BLOCK_DIM)
    is_dim = dims < DIM
    offsets = tl.arange(0, BLOCK_N)
    for block in range(begin, end):
        if RING:
            place = in_ring(rest + block * BLOCK_N, offsets, capacity).to(tl.int64)
            k_block = k_ptr + place[:, None] * k_row + dims[None, :]
            v_block = v_ptr + place[:, None] * v_row + dims[None, :]
        else:
            first = (rest + block * BLOCK_N).to(tl.int64)
            k_block = k_ptr + first * k_row + offsets[:, None] * k_row + dims[None, :]
            v_block = v_ptr + first * v_row + offsets[:, None] * v_row + dims[None, :]
        if DIM == BLOCK_DIM:
            k = tl.load(k_block)
            v = tl.load(v_block)
        else:
            k = tl.load(k_block, mask=is_dim[None, :], other=0.0)
            v = tl.load(v_block, mask=is_dim[None, :], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            scores = capped(scores, slope)
        acc, total, highest = absorb(scores, v, acc, total, highest, scale)
    return acc, total, highest


@triton.jit
def _masked_blocks(
    q: tl.tensor,  # [M, D]
    k_ptr: tl.tensor,  # [capacity, D]
    v_ptr: tl.tensor,  # [capacity, D]
    k_row: tl.tensor,
    v_row: tl.tensor,
    begins: tl.tensor,
    rest: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    sets_ptr: tl.tensor,  # [M], to the first word of each row's set
    visible_word: tl.tensor,
    row: tl.tensor,  # [M]
    rows: tl.tensor,
    own: tl.tensor,
    prefix: tl.tensor,
    capacity: tl.tensor,
    depth: tl.tensor,  # [M], rows behind the prefix that each row would see; where NARROW
    least: tl.tensor,  # [M], the first row of the text that each row sees; where WINDOWED
    window: tl.tensor,
    acc: tl.tensor,
    total: tl.tensor,
    highest: tl.tensor,
    scale: tl.tensor,
    slope: tl.tensor,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWED: tl.constexpr,
    NARROW: tl.constexpr,
    CAPPED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The ``own`` blocks behind the prefix, then the columns from ``begins`` to ``rest``."""
    dims = tl.arange(0, BLOCK_DIM)
    is_dim = dims < DIM
    offsets = tl.arange(0, BLOCK)
    for block in tl.range(begin, end, num_stages=2):
        is_own = block < own
        # Bits of this block's columns: shifted out of the tree's words, or those before ``rest``.
        start = tl.where(is_own, block, block - own) * BLOCK
        bits = tl.load(
            sets_ptr + (start // 64) * visible_word,
            mask=row < tl.where(is_own, rows, 0),
            other=0,
        )
        seen = ((bits[:, None] >> (start % 64 + offsets)[None, :]) & 1) != 0
        seen_by_any = ((tl.reduce(bits, 0, _or) >> (start % 64 + offsets)) & 1) != 0
        if NARROW:
            before = _size(bits & ((1 << (start % 64).to(tl.int64)) - 1))
            before += _sizes(sets_ptr, visible_word, start // 64, row < rows, WORDS)
            until = before[:, None] + tl.cumsum(seen.to(tl.int32), 1)
            seen = seen & (depth[:, None] - until < window)
        if WINDOWED:
            column = begins + start + offsets
            in_rest = column < tl.where(is_own, 0, rest)
            seen = seen | (in_rest[None, :] & (column[None, :] >= least[:, None]))
            column = in_ring(tl.where(is_own, prefix, begins) + start, offsets, capacity)
        else:
            in_rest = start + offsets < tl.where(is_own, 0, rest)
            seen = seen | in_rest[None, :]
            column = tl.where(is_own, prefix, 0) + start + offsets
        seen_by_any = seen_by_any | in_rest

        inside = (column < capacity)[:, None] & is_dim[None, :]
        k_block = k_ptr + column.to(tl.int64)[:, None] * k_row + dims[None, :]
        v_block = v_ptr + column.to(tl.int64)[:, None] * v_row + dims[None, :]
        k = tl.load(k_block, mask=inside, other=0.0)
        v = tl.load(v_block, mask=inside, other=0.0)
        v = tl.where(seen_by_any[:, None], v, 0.0)  # a weight of 0 does not silence a NaN
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            scores = capped(scores, slope)
        scores = tl.where(seen, scores, float("-inf"))
        acc, total, highest = absorb(scores, v, acc, total, highest, scale)
    return acc, total, highest


@triton.jit
def in_ring(first: tl.tensor, offsets: tl.tensor, capacity: tl.tensor) -> tl.tensor:
    """The places of rows ``first + offsets`` of a text, which are no more than the ring has."""
    place = first % capacity + offsets
    return tl.where(place < capacity, place, place - capacity)


@triton.jit
def capped(scores: tl.tensor, slope: tl.tensor) -> tl.tensor:
    """The tanh of ``scores · slope / (2 log2(e))``."""
    return 1.0 - 2.0 / (tl.exp2(scores * slope) + 1.0)


@triton.jit
def _sizes(
    sets_ptr: tl.tensor,
    visible_word: tl.tensor,
    words: tl.tensor,
    is_row: tl.tensor,
    WORDS: tl.constexpr,
) -> tl.tensor:
    """The number of columns in the first ``words`` words of each row's set: [M].

    Not in a loop: addresses that depend on a loop's result are not known to be aligned.
    """
    word = tl.arange(0, WORDS)[None, :]
    inside = is_row[:, None] & (word < words)
    bits = tl.load(sets_ptr[:, None] + word * visible_word, mask=inside, other=0)
    return tl.sum(_size(bits), 1)


@triton.jit
def _size(bits: tl.tensor) -> tl.tensor:
    """The number of ones in each word."""
    bits = bits - ((bits >> 1) & 0x5555555555555555)
    bits = (bits & 0x3333333333333333) + ((bits >> 2) & 0x3333333333333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((bits * 0x0101010101010101) >> 56).to(tl.int32)


@triton.jit
def absorb(
    scores: tl.tensor,
    v: tl.tensor,
    acc: tl.tensor,
    total: tl.tensor,
    highest: tl.tensor,
    scale: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """One block of columns into the running softmax: scores [M, N], v [N, D], acc [M, D].

    ``highest`` [M] is the largest score so far in base 2, ``total`` [M] the sum of weights.
    """
    best = tl.maximum(highest, tl.max(scores, 1) * scale)
    shift = tl.where(best == float("-inf"), 0.0, best)  # nothing seen yet: −inf − −inf is NaN
    weights = tl.exp2(scores * scale - shift[:, None])
    decay = tl.exp2(highest - shift)
    total = total * decay + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision="ieee")
    return acc, total, best


@triton.jit
def _or(left: tl.tensor, right: tl.tensor) -> tl.tensor:
    return left | right


@triton.jit(
    do_not_specialize=["nodes", "heads", "splits"],
    do_not_specialize_on_alignment=["part_lse_ptr", "lse_ptr"],
)
def _merge(
    part_out_ptr: tl.tensor,  # [splits, Hq·T, D]
    part_lse_ptr: tl.tensor,  # [splits, Hq·T], base 2
    out_ptr: tl.tensor,  # [T, Hq, D]
    lse_ptr: tl.tensor,  # [Hq, T]
    nodes: tl.tensor,
    heads: tl.tensor,
    splits: tl.tensor,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """One row of the result out of its parts, all of them in flight at once."""
    wait(EARLY)
    packed = tl.program_id(0)
    part = tl.arange(0, BLOCK_SPLITS)
    dims = tl.arange(0, BLOCK_DIM)
    is_part = part < splits
    is_dim = dims < DIM
    rows = part.to(tl.int64) * heads * nodes + packed
    parts = tl.load(
        part_out_ptr + rows[:, None] * DIM + dims[None, :],
        mask=is_part[:, None] & is_dim[None, :],
        other=0.0,
    ).to(tl.float32)
    lse = tl.load(part_lse_ptr + rows, mask=is_part, other=float("-inf"))
    highest = tl.max(lse, 0)
    weights = tl.exp2(lse - highest)
    total = tl.sum(weights, 0)
    out = tl.sum(parts * (weights / total)[:, None], 0)
    row = (packed % nodes).to(tl.int64) * heads + packed // nodes
    tl.store(out_ptr + row * DIM + dims, out.to(out_ptr.dtype.element_ty), mask=is_dim)
    tl.store(lse_ptr + packed, (highest + tl.log2(total)) * LN_2)


@triton.jit(
    do_not_specialize=["heads", "group", "chunk", "short", "chunks", "lse_head"],
    do_not_specialize_on_alignment=["lse_ptr", "length_ptr", "out_ptr"],
)
def _score_chunks(
    query_ptr: tl.tensor,  # [Hq, D]
    lse_ptr: tl.tensor,  # [Hq], natural
    k_ptr: tl.tensor,  # [Hkv, capacity, D]
    length_ptr: tl.tensor,  # int64, one element
    out_ptr: tl.tensor,  # float32 [chunks]
    scale: tl.tensor,  # of the scores, in base 2
    slope: tl.tensor,  # where CAPPED: as of ``capped``
    heads: tl.tensor,
    group: tl.tensor,
    chunk: tl.tensor,
    short: tl.tensor,
    chunks: tl.tensor,
    query_head: tl.tensor,
    lse_head: tl.tensor,
    k_head: tl.tensor,
    k_row: tl.tensor,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    GROUP: tl.constexpr,
    PIECE: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    CAPPED: tl.constexpr,
) -> None:
    """A few chunks, over all heads; PIECE rows of each at a time."""
    length = tl.load(length_ptr).to(tl.int32)
    dims = tl.arange(0, BLOCK_DIM)
    is_dim = dims < DIM
    member = tl.arange(0, GROUP)
    is_member = member < group
    column = tl.arange(0, BLOCK_CHUNKS * PIECE)
    first_chunk = tl.program_id(0) * BLOCK_CHUNKS
    in_chunk = column % PIECE
    start = (first_chunk + column // PIECE) * chunk - short

    sums = tl.zeros([BLOCK_CHUNKS * PIECE], dtype=tl.float32)
    # Chunks without text cost nothing: no piece, no head.
    pieces = tl.where(first_chunk * chunk - short < length, tl.cdiv(chunk, PIECE), 0)
    for step in range(0, pieces * (heads // group)):
        kv_head = step % (heads // group)
        offset = step // (heads // group) * PIECE + in_chunk
        is_text = (offset < chunk) & (start + offset >= 0) & (start + offset < length)
        head = kv_head * group + member
        q = tl.load(
            query_ptr + head.to(tl.int64)[:, None] * query_head + dims[None, :],
            mask=is_member[:, None] & is_dim[None, :],
            other=0.0,
        )
        k = tl.load(
            k_ptr
            + kv_head.to(tl.int64) * k_head
            + (start + offset).to(tl.int64)[:, None] * k_row
            + dims[None, :],
            mask=is_text[:, None] & is_dim[None, :],
            other=0.0,
        )
        lse = tl.load(lse_ptr + head * lse_head, mask=is_member, other=0.0) / LN_2
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            scores = capped(scores, slope)
        weights = tl.exp2(scores * scale - lse[:, None])
        weights = tl.where(is_member[:, None] & is_text[None, :], weights, 0.0)
        sums += tl.sum(weights, 0)

    ids = first_chunk + tl.arange(0, BLOCK_CHUNKS)
    size = tl.minimum(chunk, length + short - ids * chunk) - tl.where(ids == 0, short, 0)
    rows = tl.maximum(size, 1) * heads
    score = tl.sum(tl.reshape(sums, [BLOCK_CHUNKS, PIECE]), 1) / rows.to(tl.float32)
    tl.store(out_ptr + ids, tl.where(size > 0, score, float("-inf")), mask=ids < chunks)
