"""A decoder layer in float32 on a CPU: few, large calls.

A pass over a handful of rows is bound by the number of operations as much as by reading weights, so
each line here that computes is one call of torch. What it computes is what ``TorchLayer`` computes;
only the order of roundings differs.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding as lookup
from torch.nn.functional import silu

from specx.kernels.layers import HeadNorms, LayerWeights
from specx.kernels.spec import NormSpec
from specx.kernels.torch.cpu_product import CpuProduct


class CpuNorm:
    """An RMSNorm in four calls: ``x · w √K / hypot(‖x‖, √(K eps))``."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight [..., K]: of one norm, or of several side by side."""
        size = weight.shape[-1]
        self._weight = weight * size**0.5
        self._least = torch.tensor((size * eps) ** 0.5, dtype=weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """Norm x [..., K]."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._least)
        return (x * self._weight).div_(length)


class CpuHeadInput:
    """``HeadInput``; both norms at once."""

    def __init__(self, embedding: Tensor, norms: HeadNorms | None) -> None:
        self._embedding, self._norm = embedding, None
        self._residual = norms is not None and norms.residual
        if norms is not None:
            self._norm = CpuNorm(torch.stack([norms.embedding, norms.state]), norms.eps)

    def __call__(
        self, tokens: Tensor, states: Tensor, parents: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        residual = states if parents is None else states.index_select(0, parents)
        both = torch.stack([lookup(tokens, self._embedding), residual], dim=1)
        if self._norm is not None:
            both = self._norm(both)
        return both.flatten(1), both[:, 1].contiguous() if self._residual else residual


class CpuLayer:
    """``LayerKernels`` in float32 or float64 on a CPU."""

    def __init__(self, weights: LayerWeights) -> None:
        spec = weights.spec
        self._dim = spec.attention.head_dim
        self._input_norm = _norm(weights.input_norm, spec.input_norm)
        self._heads, self._out = CpuProduct(weights.heads), CpuProduct(weights.out)
        head_norm = spec.attention.head_norm
        self._query_norm = _norm(weights.query_norm, head_norm)
        self._key_norm = _norm(weights.key_norm, head_norm)
        self._output_norm = _norm(weights.output_norm, spec.output_norm)
        self._gate_up, self._down = CpuProduct(weights.gate_up), CpuProduct(weights.down)

    def before_attention(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        kv_heads = keys.shape[0]
        normed = x if self._input_norm is None else self._input_norm(x)
        heads = self._heads(normed).view(x.shape[0], -1, self._dim).transpose(0, 1)
        values.index_copy_(1, slots, heads[-kv_heads:])
        if self._query_norm is not None and self._key_norm is not None:
            q, k = heads[: -2 * kv_heads], heads[-2 * kv_heads : -kv_heads]
            keys.index_copy_(1, slots, _rotated(self._key_norm(k), cos, sin))
            return _rotated(self._query_norm(q), cos, sin)
        turned = _rotated(heads[:-kv_heads], cos, sin)
        keys.index_copy_(1, slots, turned[-kv_heads:])
        return turned[:-kv_heads]

    def after_attention(
        self,
        attended: Tensor,
        x: Tensor,
        per_layer: Tensor | None = None,  # noqa: ARG002 - a plain layer has none
    ) -> Tensor:
        assert self._output_norm is not None
        x = self._out.plus(x, attended)
        gate, up = self._gate_up(self._output_norm(x)).chunk(2, dim=-1)
        return self._down.plus(x, silu(gate).mul_(up))


def _norm(weight: Tensor | None, norm: NormSpec | None) -> CpuNorm | None:
    return None if weight is None or norm is None else CpuNorm(weight, norm.eps)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Give heads [H, T, D], in any order in memory, their positions: contiguous [H, T, D]."""
    turned = torch.empty(heads.shape, dtype=heads.dtype)
    torch.mul(heads, cos, out=turned)
    (first, second), (above, below) = heads.chunk(2, dim=-1), turned.chunk(2, dim=-1)
    sin = sin[:, : sin.shape[1] // 2]
    above.addcmul_(second, sin, value=-1)
    below.addcmul_(first, sin)
    return turned
