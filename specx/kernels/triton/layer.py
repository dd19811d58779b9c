"""The work of a decoder layer around its matrix products: a Triton kernel each.

Results are rounded where the modules of transformers round them. Nothing is read back to the host,
and grids depend on shapes only, so all of it can be captured in a CUDA graph.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.kernels.layers import HeadNorms
from specx.kernels.triton import programmatic_launch
from specx.kernels.triton.programmatic_launch import wait

HEADS_AT_ONCE = 4
COLUMNS_AT_ONCE = 1024


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute ``Norm``: x [T, K], weight [K] -> [T, K]."""
    out = torch.empty_like(x)
    _normalize(x, None, None, out, weight, eps)
    return out


def add_rms_norm(x: Tensor, product: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add x, product [T, K], and norm with weight [K] -> (the sum, its norm), [T, K] each."""
    assert product.shape == x.shape
    assert product.is_contiguous()
    total, out = torch.empty_like(x), torch.empty_like(x)
    _normalize(x, product, total, out, weight, eps)
    return total, out


def _normalize(
    x: Tensor,
    product: Tensor | None,
    total: Tensor | None,
    out: Tensor,
    weight: Tensor,
    eps: float,
) -> None:
    rows, inputs = x.shape
    assert x.is_contiguous()
    assert weight.shape == (inputs,)
    _rms_norm[(rows,)](
        x, product, total, out, weight, eps,
        ADD=product is not None, K=inputs, BLOCK=triton.next_power_of_2(inputs),
        num_warps=4 if inputs <= 2048 else 8, **programmatic_launch.options(x.device),
    )  # fmt: skip


def head_input(
    tokens: Tensor,
    embedding: Tensor,
    states: Tensor,
    parents: Tensor | None,
    norms: HeadNorms | None,
) -> tuple[Tensor, Tensor]:
    """Compute ``HeadInput``: embedding [V, H]."""
    rows, size = len(tokens), states.shape[1]
    assert parents is not None or len(states) == rows
    assert embedding.shape[1] == size
    assert embedding.is_contiguous()
    assert states.is_contiguous()
    normed = norms is not None and norms.residual
    x, residual = states.new_empty((rows, 2 * size)), states
    if parents is not None or normed:
        residual = states.new_empty((rows, size))
    _head_input[(rows, 2)](
        tokens.contiguous(), None if parents is None else parents.contiguous(), embedding, states,
        norms and norms.embedding, norms and norms.state, x, residual,
        0.0 if norms is None else norms.eps,
        GATHER=parents is not None, NORMED=norms is not None, NORMED_RESIDUAL=normed,
        OWN=residual is not states,
        H=size, BLOCK=triton.next_power_of_2(size),
        num_warps=4 if size <= 2048 else 8, **programmatic_launch.options(states.device),
    )  # fmt: skip
    return x, residual


def rotate_and_store(
    qkv: Tensor,
    norms: tuple[Tensor, Tensor, float] | None,
    cos: Tensor,
    sin: Tensor,
    places: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Give queries and keys their positions (halves rotated), and store keys and values.

    qkv [T, (Hq + 2 Hkv) · D], queries first, then keys, then values; norms: weights [D] of an
    RMSNorm of each query and of each key head, and its epsilon, if there are any; cos, sin [T, D],
    rows contiguous, whose second halves repeat the first; places int64 [T]: the rows of keys and
    values [Hkv, capacity, D] (equal strides, rows contiguous) that the new ones are written to.

    Returns queries [Hq, T, D], which lie in memory as [T, Hq, D].
    """
    rows, columns = qkv.shape
    kv_heads, _, dim = keys.shape
    all_heads = columns // dim
    heads = all_heads - 2 * kv_heads
    assert columns == all_heads * dim
    assert qkv.is_contiguous()
    assert cos.shape == sin.shape == (rows, dim)
    assert cos.stride() == sin.stride()
    assert cos.stride(1) == places.stride(0) == keys.stride(2) == 1
    assert keys.stride() == values.stride()
    q = torch.empty((rows, heads, dim), dtype=qkv.dtype, device=qkv.device)
    query_norm, key_norm, eps = norms or (None, None, 0.0)
    _rotate_and_store[(rows, triton.cdiv(all_heads, HEADS_AT_ONCE))](
        qkv, query_norm, key_norm, cos, sin, places, q, keys, values, eps,
        cos.stride(0), keys.stride(0), keys.stride(1),
        NORMED=norms is not None, HEADS=heads, KV_HEADS=kv_heads, DIM=dim,
        BLOCK_HEADS=HEADS_AT_ONCE, BLOCK_HALF=triton.next_power_of_2(dim // 2), num_warps=2,
        enable_fp_fusion=False,  # which would leave out rounding between product and sum
        **programmatic_launch.options(qkv.device),
    )  # fmt: skip
    return q.transpose(0, 1)


def gated(both: Tensor) -> Tensor:
    """Multiply SiLU of the first half of each row by the second: [T, 2 N] -> [T, N]."""
    rows, columns = both.shape[0], both.shape[1] // 2
    assert both.is_contiguous()
    out = torch.empty((rows, columns), dtype=both.dtype, device=both.device)
    _gated[(rows, triton.cdiv(columns, COLUMNS_AT_ONCE))](
        both,
        out,
        N=columns,
        BLOCK=COLUMNS_AT_ONCE,
        num_warps=4,
        **programmatic_launch.options(both.device),
    )
    return out


def rotary_angles(
    positions: Tensor, frequencies: Tensor, scaling: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Compute ``Ops.rotary_angles``."""
    assert positions.stride(0) == frequencies.stride(0) == 1
    half = len(frequencies)
    both = torch.empty((2, len(positions), 2 * half), dtype=dtype, device=positions.device)
    # Not launched early: attention reads the prefix before the kernels behind this one are done.
    _angles[(len(positions),)](
        positions, frequencies, both[0], both[1], scaling,
        HALF=half, BLOCK=triton.next_power_of_2(half), num_warps=1,
    )  # fmt: skip
    return both[0], both[1]


@triton.jit
def _rms_norm(
    x_ptr: tl.tensor,  # [T, K]
    product_ptr: tl.tensor,  # [T, K], where ADD
    total_ptr: tl.tensor,  # [T, K], where ADD
    out_ptr: tl.tensor,  # [T, K]
    weight_ptr: tl.tensor,  # [K]
    eps: tl.tensor,
    ADD: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """One row."""
    column = tl.arange(0, BLOCK)
    inside = column < K
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    wait(EARLY)
    at = tl.program_id(0).to(tl.int64) * K + column
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(product_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x = rounded(x, x_ptr)
        tl.store(total_ptr + at, x.to(total_ptr.dtype.element_ty), mask=inside)
    x = rounded(x * tl.rsqrt(tl.sum(x * x, 0) / K + eps), x_ptr)
    tl.store(out_ptr + at, (x * weight).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["tokens_ptr", "parents_ptr"])
def _head_input(
    tokens_ptr: tl.tensor,  # int64 [T]
    parents_ptr: tl.tensor,  # int64 [T], where GATHER
    embedding_ptr: tl.tensor,  # [V, H]
    states_ptr: tl.tensor,  # [S, H]
    embedding_norm_ptr: tl.tensor,  # [H], where NORMED
    state_norm_ptr: tl.tensor,  # [H], where NORMED
    x_ptr: tl.tensor,  # [T, 2 H]
    residual_ptr: tl.tensor,  # [T, H], written where OWN
    eps: tl.tensor,
    GATHER: tl.constexpr,
    NORMED: tl.constexpr,
    NORMED_RESIDUAL: tl.constexpr,
    OWN: tl.constexpr,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """One row: its embedding, or its state."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < H
    wait(EARLY)
    if tl.program_id(1) == 0:
        at = embedding_ptr + tl.load(tokens_ptr + row) * H + column
        embedded = rounded(tl.load(at, mask=inside, other=0.0).to(tl.float32), x_ptr)
        if NORMED:
            embedded = _normed(embedded, embedding_norm_ptr, column, inside, eps, H)
        tl.store(x_ptr + row * (2 * H) + column, embedded, mask=inside)
    else:
        parent = tl.load(parents_ptr + row) if GATHER else row
        state = tl.load(states_ptr + parent * H + column, mask=inside, other=0.0).to(tl.float32)
        normed = state
        if NORMED:
            normed = _normed(state, state_norm_ptr, column, inside, eps, H)
        tl.store(x_ptr + row * (2 * H) + H + column, normed, mask=inside)
        if OWN:
            residual = normed if NORMED_RESIDUAL else state
            tl.store(residual_ptr + row * H + column, residual, mask=inside)


@triton.jit
def _normed(
    x: tl.tensor,
    weight_ptr: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    eps: tl.tensor,
    K: tl.constexpr,
) -> tl.tensor:
    """x, float32, over its root mean square, times a weight [K]; rounded before and after that."""
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    x = rounded(x * tl.rsqrt(tl.sum(x * x, 0) / K + eps), weight_ptr)
    return rounded(x * weight, weight_ptr)


@triton.jit(
    do_not_specialize=["angle_row", "store_head"],
    do_not_specialize_on_alignment=["places_ptr"],
)
def _rotate_and_store(
    qkv_ptr: tl.tensor,  # [T, (Hq + 2 Hkv) · D]
    query_norm_ptr: tl.tensor,  # [D], where NORMED
    key_norm_ptr: tl.tensor,  # [D], where NORMED
    cos_ptr: tl.tensor,  # [T, D]
    sin_ptr: tl.tensor,  # [T, D]
    places_ptr: tl.tensor,  # int64 [T]
    q_ptr: tl.tensor,  # [T, Hq, D]
    keys_ptr: tl.tensor,  # [Hkv, capacity, D]
    values_ptr: tl.tensor,  # [Hkv, capacity, D]
    eps: tl.tensor,
    angle_row: tl.tensor,
    store_head: tl.tensor,
    store_row: tl.tensor,
    NORMED: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Some heads of one row. A pair that rotates lies half a head apart."""
    wait(EARLY)
    HALF: tl.constexpr = DIM // 2
    ALL: tl.constexpr = HEADS + 2 * KV_HEADS
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
    dims = tl.arange(0, BLOCK_HALF)[None, :]
    is_dim = dims < HALF
    is_query = head < HEADS
    is_value = head >= HEADS + KV_HEADS
    inside = (head < ALL) & is_dim
    at = qkv_ptr + row * (ALL * DIM) + head * DIM + dims
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    new_low, new_high = low, high
    if NORMED:
        scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / DIM + eps)[:, None]
        new_low = _times_norm(low * scale, query_norm_ptr, key_norm_ptr, dims, is_dim, is_query)
        new_high = _times_norm(
            high * scale, query_norm_ptr + HALF, key_norm_ptr + HALF, dims, is_dim, is_query
        )
    cos = tl.load(cos_ptr + row * angle_row + dims, mask=is_dim, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row * angle_row + dims, mask=is_dim, other=0.0).to(tl.float32)
    turned_low = rounded(new_low * cos, q_ptr) - rounded(new_high * sin, q_ptr)
    turned_high = rounded(new_high * cos, q_ptr) + rounded(new_low * sin, q_ptr)
    dtype = q_ptr.dtype.element_ty
    low = tl.where(is_value, low, turned_low).to(dtype)
    high = tl.where(is_value, high, turned_high).to(dtype)

    to = q_ptr + row * (HEADS * DIM) + head * DIM + dims
    tl.store(to, low, mask=is_query & is_dim)
    tl.store(to + HALF, high, mask=is_query & is_dim)
    place = tl.load(places_ptr + row) * store_row + dims
    is_key = inside & (head >= HEADS) & (head < HEADS + KV_HEADS)
    to = keys_ptr + (head - HEADS).to(tl.int64) * store_head + place
    tl.store(to, low, mask=is_key)
    tl.store(to + HALF, high, mask=is_key)
    to = values_ptr + (head - HEADS - KV_HEADS).to(tl.int64) * store_head + place
    tl.store(to, low, mask=inside & is_value)
    tl.store(to + HALF, high, mask=inside & is_value)


@triton.jit
def _times_norm(
    x: tl.tensor,
    query_norm_ptr: tl.tensor,
    key_norm_ptr: tl.tensor,
    dims: tl.tensor,
    is_dim: tl.tensor,
    is_query: tl.tensor,
) -> tl.tensor:
    """x [heads, dims] times the weight of its kind of head."""
    query = tl.load(query_norm_ptr + dims, mask=is_dim, other=0.0).to(tl.float32)
    key = tl.load(key_norm_ptr + dims, mask=is_dim, other=0.0).to(tl.float32)
    return rounded(rounded(x, query_norm_ptr) * tl.where(is_query, query, key), query_norm_ptr)


@triton.jit
def _gated(
    both_ptr: tl.tensor,  # [T, 2 N]
    out_ptr: tl.tensor,  # [T, N]
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Some columns of one row."""
    wait(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    at = both_ptr + row * (2 * N) + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + N, mask=inside, other=0.0).to(tl.float32)
    out = rounded(gate / (1.0 + tl.exp(-gate)), both_ptr) * up
    tl.store(out_ptr + row * N + column, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["positions_ptr"])
def _angles(
    positions_ptr: tl.tensor,  # int64 [T]
    frequencies_ptr: tl.tensor,  # [D/2]
    cos_ptr: tl.tensor,  # [T, D]
    sin_ptr: tl.tensor,  # [T, D]
    scaling: tl.tensor,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One row."""
    row = tl.program_id(0)
    dims = tl.arange(0, BLOCK)
    position = tl.load(positions_ptr + row).to(tl.float32)
    angle = position * tl.load(frequencies_ptr + dims, mask=dims < HALF, other=0.0)
    cos = (tl.cos(angle) * scaling).to(cos_ptr.dtype.element_ty)
    sin = (tl.sin(angle) * scaling).to(sin_ptr.dtype.element_ty)
    at = row * 2 * HALF + dims
    tl.store(cos_ptr + at, cos, mask=dims < HALF)
    tl.store(cos_ptr + at + HALF, cos, mask=dims < HALF)
    tl.store(sin_ptr + at, sin, mask=dims < HALF)
    tl.store(sin_ptr + at + HALF, sin, mask=dims < HALF)


@triton.jit
def rounded(x: tl.tensor, like: tl.tensor) -> tl.tensor:
    """x, float32, as an element of what ``like`` points to would hold it."""
    return x.to(like.dtype.element_ty).to(tl.float32)
