"""A decoder layer in float32 on a CPU: few, large calls.

A pass over a handful of rows is bound by the number of operations as much as by reading weights, so
each line here that computes is one call of torch. What it computes is what ``TorchLayer`` computes;
only the order of roundings differs.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding as lookup
from torch.nn.functional import silu

from specx.ops.layers import HeadNorms, LayerWeights, LinearMap, Norm
from specx.ops.spec import NormSpec
from specx.ops.torch.cache import store_rows
from specx.ops.torch.cpu_product import CpuProduct
from specx.ops.torch.layer import TorchLayer, TorchNorm


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


class CpuLayer(TorchLayer):
    """``LayerKernels`` in float32 or float64 on a CPU, for every ``LayerSpec``."""

    def __init__(self, weights: LayerWeights) -> None:
        super().__init__(weights)
        self._plain, self._dim = weights.is_plain, weights.spec.attention.head_dim
        if self._plain:
            self._plain_out, self._plain_down = CpuProduct(weights.out), CpuProduct(weights.down)

    def product(self, linear_map: LinearMap) -> CpuProduct:
        return CpuProduct(linear_map)

    def norm(self, spec: NormSpec, weight: Tensor | None, bias: Tensor | None) -> Norm:
        return cpu_norm(spec, weight, bias)

    def rotated(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return _rotated(heads, cos, sin)

    def before_attention(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        if not self._plain:
            return super().before_attention(x, cos, sin, slots, keys, values)
        kv_heads = keys.shape[0]
        normed = x if self._input_norm is None else self._input_norm(x)
        heads = self._heads(normed).view(x.shape[0], -1, self._dim).transpose(0, 1)
        own = heads[-kv_heads:]
        if self._query_norm is not None and self._key_norm is not None:
            q, k = heads[: -2 * kv_heads], heads[-2 * kv_heads : -kv_heads]
            store_rows(keys, values, slots, _rotated(self._key_norm(k), cos, sin), own)
            return _rotated(self._query_norm(q), cos, sin)
        turned = _rotated(heads[:-kv_heads], cos, sin)
        store_rows(keys, values, slots, turned[-kv_heads:], own)
        return turned[:-kv_heads]

    def after_attention(
        self, attended: Tensor, x: Tensor, per_layer: Tensor | None = None
    ) -> Tensor:
        if not self._plain:
            return super().after_attention(attended, x, per_layer)
        assert self._output_norm is not None
        x = self._plain_out.plus(x, attended)
        gate, up = self._gate_up(self._output_norm(x)).chunk(2, dim=-1)
        return self._plain_down.plus(x, silu(gate, inplace=True).mul_(up))


def cpu_norm(spec: NormSpec, weight: Tensor | None, bias: Tensor | None = None) -> Norm:
    """Prepare the norm that takes the fewest calls."""
    if not spec.centred and weight is not None and bias is None:
        return CpuNorm(weight, spec.eps)
    return TorchNorm(spec, weight, bias)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Give heads [H, T, D], in any order in memory, their positions: contiguous [H, T, D]."""
    turned = torch.empty(heads.shape, dtype=heads.dtype)
    torch.mul(heads, cos, out=turned)
    (first, second), (above, below) = heads.chunk(2, dim=-1), turned.chunk(2, dim=-1)
    sin = sin[:, : sin.shape[1] // 2]
    above.addcmul_(second, sin, value=-1)
    below.addcmul_(first, sin)
    return turned
