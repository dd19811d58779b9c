"""The gated delta rule for the rows of a tree, and for what is kept of it, by few kernels.

A program reads a part of a head's state once and goes with it along the path of one row, ancestor
by ancestor, as plain decoding goes along a text: so a row's numbers are the same to the bit
whatever rows are beside it and however much of its path is text already. A path is short, and rows
go side by side, so the state is read from the cache. Prompts are read by torch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.ops.ancestors import AncestorMask
from specx.ops.delta_state import DeltaState
from specx.ops.layers import LayerWeights
from specx.ops.spec import AttentionSpec
from specx.ops.torch import delta as torch_delta
from specx.ops.torch.delta import EPS, DeltaRows
from specx.ops.triton.layer import rounded

COLUMNS = 16  # of a state that a program has
WARPS = 2


class TritonRows:
    """Reads rows behind a text with a layer's delta rule (``torch.delta.ReadBehind``)."""

    def __init__(self, weights: LayerWeights) -> None:
        assert weights.delta is not None
        self._weights, self._attention = weights.delta, weights.spec.attention

    def __call__(
        self,
        inputs: Tensor,
        rates: Tensor,
        state: DeltaState,
        history: Tensor,
        mask: AncestorMask,
    ) -> Tensor:
        attention, delta, own = self._attention, self._attention.delta, self._weights
        assert delta is not None
        count, heads, dim = len(inputs), attention.query_heads, attention.head_dim
        old = mask.rows - count
        q = torch.empty((count, attention.kv_heads, delta.key_dim), dtype=state.keys.dtype,
                        device=inputs.device)  # fmt: skip
        v = torch.empty((count, heads, dim), dtype=q.dtype, device=q.device)
        beta = torch.empty((count, heads), dtype=q.dtype, device=q.device)
        _make_rows[(count, 2 * attention.kv_heads + heads)](
            inputs.contiguous(), rates.contiguous(), history.contiguous(),
            own.convolution, own.decay, own.bias,
            state.inputs, state.row_inputs, state.keys, state.decays, q, v, beta,
            old, attention.scaling, EPS,
            NEGATIVE=delta.negative, KERNEL=delta.kernel, HEADS=heads,
            KEY_HEADS=attention.kv_heads, KEY_DIM=delta.key_dim, DIM=dim,
            BLOCK=triton.next_power_of_2(max(delta.key_dim, dim)), num_warps=1,
        )  # fmt: skip
        rows = DeltaRows(q=q, k=state.keys[old : mask.rows], v=v, beta=beta,
                         g=state.decays[old : mask.rows])  # fmt: skip
        return read_tree(rows, state, mask, attention, inputs.dtype)


def read_tree(
    rows: DeltaRows,
    state: DeltaState,
    mask: AncestorMask,
    attention: AttentionSpec,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Compute ``torch.delta.read_tree`` in float32; what comes out is in ``dtype``."""
    assert attention.delta is not None
    count, heads, dim = rows.v.shape
    out = torch.empty(rows.v.shape, dtype=dtype, device=rows.v.device)
    _read_tree[(count, heads, triton.cdiv(dim, COLUMNS))](
        rows.q.contiguous(), rows.v.contiguous(), rows.beta.contiguous(),
        mask.sets.contiguous(), state.keys, state.decays, state.updates, state.state, out,
        mask.rows - count, mask.sets.shape[1],
        HEADS=heads, KEY_HEADS=rows.k.shape[1], TILED=attention.delta.tiled,
        KEY_DIM=attention.delta.key_dim, DIM=dim,
        BLOCK=triton.next_power_of_2(attention.delta.key_dim), COLUMNS=COLUMNS,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def gated_norm(attended: Tensor, gate: Tensor, attention: AttentionSpec, weight: Tensor) -> Tensor:
    """Norm each head of attended [T, H · D], and multiply by silu of the gate [T, H · D]."""
    delta, dim = attention.delta, attention.head_dim
    assert delta is not None
    attended, gate = attended.contiguous(), gate.contiguous()
    out = torch.empty_like(attended)
    _gated_norm[(attended.numel() // dim,)](
        attended, gate, weight, out, delta.norm.eps,
        DIM=dim, BLOCK=triton.next_power_of_2(dim), num_warps=1,
    )  # fmt: skip
    return out


def keep_delta(state: DeltaState, path: Tensor, count: Tensor, *, tiled: bool) -> None:
    """Compute ``Ops.keep_delta``."""
    if state.state.dtype == torch.float64:
        torch_delta.keep_delta(state, path, count, tiled=tiled)
        return
    layers, heads, key_dim, dim = state.state.shape
    _, rows, key_heads, _ = state.keys.shape
    _keep[(layers, heads, triton.cdiv(dim, COLUMNS))](
        path.contiguous(), count, state.keys, state.decays, state.updates, state.state,
        rows, len(path),
        HEADS=heads, KEY_HEADS=key_heads, TILED=tiled, KEY_DIM=key_dim, DIM=dim,
        BLOCK=triton.next_power_of_2(key_dim), COLUMNS=COLUMNS,
        num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    torch_delta.keep_inputs(state, path, count)


@triton.jit(do_not_specialize=["old"])
def _make_rows(
    inputs_ptr: tl.tensor,  # [T, C]
    rates_ptr: tl.tensor,  # [T, 2 Hv]
    history_ptr: tl.tensor,  # int64 [T, KERNEL]
    weight_ptr: tl.tensor,  # [C, KERNEL]
    decay_ptr: tl.tensor,  # [Hv]
    bias_ptr: tl.tensor,  # [Hv]
    known_ptr: tl.tensor,  # [KERNEL - 1, C]: inputs of the text's last tokens
    row_inputs_ptr: tl.tensor,  # [R, C]
    keys_ptr: tl.tensor,  # [R, Hk, Dk]
    decays_ptr: tl.tensor,  # [R, Hv]
    q_ptr: tl.tensor,  # [T, Hk, Dk]
    v_ptr: tl.tensor,  # [T, Hv, Dv]
    beta_ptr: tl.tensor,  # [T, Hv]
    old: tl.tensor,  # rows that were read before
    scaling: tl.tensor,
    eps: tl.tensor,
    NEGATIVE: tl.constexpr,
    KERNEL: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A head of queries, of keys or of values of one row, in this order; with values β and g."""
    row, number = tl.program_id(0), tl.program_id(1)
    channels = 2 * KEY_HEADS * KEY_DIM + HEADS * DIM
    head = number - 2 * KEY_HEADS  # of values
    size = tl.where(head < 0, KEY_DIM, DIM)
    first = tl.where(head < 0, number * KEY_DIM, 2 * KEY_HEADS * KEY_DIM + head * DIM)
    dims = tl.arange(0, BLOCK)
    inside, channel = dims < size, first + dims
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for place in range(KERNEL):
        at = tl.load(history_ptr + row * KERNEL + place) - (KERNEL - 1)
        weight = tl.load(weight_ptr + channel * KERNEL + place, mask=inside, other=0.0)
        if at < 0:
            read = known_ptr + (at + KERNEL - 1) * channels + channel
        elif at < old:
            read = row_inputs_ptr + at * channels + channel
        else:
            read = inputs_ptr + (at - old) * channels + channel
        total += tl.load(read, mask=inside, other=0.0).to(tl.float32) * weight.to(tl.float32)
    own = tl.load(inputs_ptr + row * channels + channel, mask=inside, other=0.0)
    tl.store(row_inputs_ptr + (old + row) * channels + channel, own, mask=inside)
    total = rounded(total, inputs_ptr)
    x = rounded(total / (1.0 + tl.exp(-total)), inputs_ptr)
    x = tl.where(inside, x, 0.0)
    if head < 0:
        x = x * tl.rsqrt(tl.sum(x * x, axis=0) + eps)
        if number < KEY_HEADS:
            to = q_ptr + (row * KEY_HEADS + number) * KEY_DIM + dims
            tl.store(to, x * scaling, mask=inside)
        else:
            to = keys_ptr + ((old + row) * KEY_HEADS + number - KEY_HEADS) * KEY_DIM + dims
            tl.store(to, x, mask=inside)
    else:
        tl.store(v_ptr + (row * HEADS + head) * DIM + dims, x, mask=inside)
        b = tl.load(rates_ptr + row * 2 * HEADS + head).to(tl.float32)
        a = tl.load(rates_ptr + row * 2 * HEADS + HEADS + head).to(tl.float32)
        beta = rounded(1.0 / (1.0 + tl.exp(-b)), rates_ptr)
        tl.store(beta_ptr + row * HEADS + head, beta * 2.0 if NEGATIVE else beta)
        a = a + tl.load(bias_ptr + head)
        plus = tl.maximum(a, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(a)))  # softplus
        g = tl.load(decay_ptr + head) * plus
        tl.store(decays_ptr + (old + row) * HEADS + head, g)


@triton.jit
def _gated_norm(
    attended_ptr: tl.tensor,  # [T, H, D]
    gate_ptr: tl.tensor,  # [T, H, D]
    weight_ptr: tl.tensor,  # [D]
    out_ptr: tl.tensor,  # [T, H, D]
    eps: tl.tensor,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One head of one row."""
    dims = tl.arange(0, BLOCK)
    inside, at = dims < DIM, tl.program_id(0).to(tl.int64) * DIM + dims
    x = tl.load(attended_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + dims, mask=inside, other=0.0).to(tl.float32)
    x = rounded(x * tl.rsqrt(tl.sum(x * x, axis=0) / DIM + eps), attended_ptr)
    x = rounded(x * weight, attended_ptr) * (gate / (1.0 + tl.exp(-gate)))
    tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["old", "words"])
def _read_tree(
    q_ptr: tl.tensor,  # [T, Hk, Dk]
    v_ptr: tl.tensor,  # [T, Hv, Dv]
    beta_ptr: tl.tensor,  # [T, Hv]
    sets_ptr: tl.tensor,  # int64 [T, W]
    keys_ptr: tl.tensor,  # [R, Hk, Dk]
    decays_ptr: tl.tensor,  # [R, Hv]
    updates_ptr: tl.tensor,  # [R, Hv, Dv]
    state_ptr: tl.tensor,  # [Hv, Dk, Dv]
    out_ptr: tl.tensor,  # [T, Hv, Dv]
    old: tl.tensor,  # rows that were read before
    words: tl.tensor,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    TILED: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Some columns of one head behind one row."""
    row, head = tl.program_id(0), tl.program_id(1)
    key_head = head % KEY_HEADS if TILED else head // (HEADS // KEY_HEADS)
    dims, columns = tl.arange(0, BLOCK), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    is_dim, is_column = dims < KEY_DIM, columns < DIM
    at = (head * KEY_DIM + dims[:, None]) * DIM + columns[None, :]
    inside = is_dim[:, None] & is_column[None, :]
    state = tl.load(state_ptr + at, mask=inside, other=0.0)
    for seen in range(old + row + 1):
        word = tl.load(sets_ptr + row * words + seen // 64)
        if ((word >> (seen % 64)) & 1) != 0:
            key = tl.load(
                keys_ptr + (seen * KEY_HEADS + key_head) * KEY_DIM + dims, mask=is_dim, other=0.0
            )
            state = state * tl.exp(tl.load(decays_ptr + seen * HEADS + head))
            if seen < old:
                update = tl.load(
                    updates_ptr + (seen * HEADS + head) * DIM + columns, mask=is_column, other=0.0
                )
            else:
                own = (seen - old) * HEADS + head
                value = tl.load(v_ptr + own * DIM + columns, mask=is_column, other=0.0)
                known = tl.sum(state * key[:, None], axis=0)
                update = (value - known) * tl.load(beta_ptr + own)
            state = state + key[:, None] * update[None, :]
            if seen == old + row:
                to = (seen * HEADS + head) * DIM + columns
                tl.store(updates_ptr + to, update, mask=is_column)
    query = tl.load(q_ptr + (row * KEY_HEADS + key_head) * KEY_DIM + dims, mask=is_dim, other=0.0)
    out = tl.sum(state * query[:, None], axis=0)
    to = out_ptr + (row * HEADS + head) * DIM + columns
    tl.store(to, out.to(out_ptr.dtype.element_ty), mask=is_column)


@triton.jit(do_not_specialize=["rows", "most"])
def _keep(
    path_ptr: tl.tensor,  # int64 [n]
    count_ptr: tl.tensor,
    keys_ptr: tl.tensor,  # [L, R, Hk, Dk]
    decays_ptr: tl.tensor,  # [L, R, Hv]
    updates_ptr: tl.tensor,  # [L, R, Hv, Dv]
    state_ptr: tl.tensor,  # [L, Hv, Dk, Dv]
    rows: tl.tensor,
    most: tl.tensor,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    TILED: tl.constexpr,
    KEY_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Some columns of one head of a layer, with the rows of a path."""
    layer, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    key_head = head % KEY_HEADS if TILED else head // (HEADS // KEY_HEADS)
    dims, columns = tl.arange(0, BLOCK), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    is_dim, is_column = dims < KEY_DIM, columns < DIM
    at = ((layer * HEADS + head) * KEY_DIM + dims[:, None]) * DIM + columns[None, :]
    inside = is_dim[:, None] & is_column[None, :]
    state = tl.load(state_ptr + at, mask=inside, other=0.0)
    count = tl.minimum(tl.load(count_ptr), most)
    for place in range(count):
        row = layer * rows + tl.load(path_ptr + place)
        key = tl.load(
            keys_ptr + (row * KEY_HEADS + key_head) * KEY_DIM + dims, mask=is_dim, other=0.0
        )
        update = tl.load(
            updates_ptr + (row * HEADS + head) * DIM + columns, mask=is_column, other=0.0
        )
        state = state * tl.exp(tl.load(decays_ptr + row * HEADS + head))
        state = state + key[:, None] * update[None, :]
    tl.store(state_ptr + at, state, mask=inside)
