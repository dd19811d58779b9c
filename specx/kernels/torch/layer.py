"""A decoder layer in plain torch, rounded where the modules of transformers round."""

import torch
from torch import Tensor
from torch.nn.functional import embedding as lookup
from torch.nn.functional import linear, silu

from specx.kernels.layers import HeadNorms, LayerWeights, LinearMap
from specx.kernels.spec import NormSpec


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x [T, K] over its root mean square, times weight [K]."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def rotary_angles(
    positions: Tensor, inv_freq: Tensor, scaling: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Compute ``Ops.rotary_angles``."""
    angles = positions[:, None] * inv_freq
    angles = torch.cat((angles, angles), dim=1)
    cos, sin = angles.cos(), angles.sin()
    if scaling != 1:
        turns = torch.cat((inv_freq, inv_freq)) != 0
        cos, sin = torch.where(turns, cos * scaling, cos), sin * scaling
    return cos.to(dtype), sin.to(dtype)


class TorchNorm:
    """``Norm`` in torch."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self._weight, self._eps)


class TorchProduct:
    """``Product`` by torch's own linear map."""

    def __init__(self, weights: LinearMap) -> None:
        self._weights = weights

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self._weights.weight, self._weights.bias)


class TorchHeadInput:
    """``HeadInput`` in torch."""

    def __init__(self, embedding: Tensor, norms: HeadNorms | None) -> None:
        self._embedding, self._norms = embedding, norms

    def __call__(
        self, tokens: Tensor, states: Tensor, parents: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        embedded, norms = lookup(tokens, self._embedding), self._norms
        residual = states if parents is None else states.index_select(0, parents)
        if norms is None:
            return torch.cat([embedded, residual], dim=-1), residual
        normed = rms_norm(residual, norms.state, norms.eps)
        x = torch.cat([rms_norm(embedded, norms.embedding, norms.eps), normed], dim=-1)
        return x, normed if norms.residual else residual


class TorchLayer:
    """``LayerKernels`` in torch."""

    def __init__(self, weights: LayerWeights) -> None:
        self._weights = weights

    def before_attention(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        w, kv_heads = self._weights, len(keys)
        normed = _normed(x, w.spec.input_norm, w.input_norm)
        heads = TorchProduct(w.heads)(normed)
        heads = heads.view(len(x), -1, w.spec.attention.head_dim).transpose(0, 1)
        q, k, v = heads.split([len(heads) - 2 * kv_heads, kv_heads, kv_heads])
        norm = w.spec.attention.head_norm
        q, k = _normed(q, norm, w.query_norm), _normed(k, norm, w.key_norm)
        keys.index_copy_(1, slots, _rotated(k, cos, sin))
        values.index_copy_(1, slots, v)
        return _rotated(q, cos, sin)

    def after_attention(
        self, attended: Tensor, x: Tensor, per_layer: Tensor | None = None
    ) -> Tensor:
        assert per_layer is None
        w = self._weights
        x = x + TorchProduct(w.out)(attended)
        gate, up = TorchProduct(w.gate_up)(_normed(x, w.spec.output_norm, w.output_norm)).chunk(
            2, dim=-1
        )
        return x + TorchProduct(w.down)(silu(gate) * up)


def _normed(x: Tensor, norm: NormSpec | None, weight: Tensor | None) -> Tensor:
    return x if norm is None or weight is None else rms_norm(x, weight, norm.eps)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Give heads [H, T, D] their positions: cos, sin [T, D]."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], dim=-1) * sin
