"""A head through the kernels of its backend: its layers are those of a model, but for the input.

As with models, the modules stay with their weights, and ``fuse_head`` puts another ``forward``
before that of the head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from specx.kernels.layers import HeadNorms, LinearMap, Norm, Product
from specx.kernels.ops import Ops
from specx.models.call import PrefillCall, TreeCall
from specx.models.fused_layers import (
    Fused,
    FusedLayer,
    FusedLinear,
    FusedNorm,
    has_known_parts,
    is_fused,
    is_known,
)
from specx.models.head import EagleFirstLayer, Head
from specx.models.module_weights import rope_of, weights_of
from specx.models.projections import join


def fuse_head(head: Head, ops: Ops) -> None:
    """Have the backend compute a head, where it gains by that. Idempotent."""
    if is_fused(head) or not ops.fuses(head.fc.weight.dtype) or not _is_known(head):
        return
    layers: Any = head.layers
    rope = rope_of(head.rotary_emb)
    for index, layer in enumerate(layers):
        kind = FusedLayer if index else FusedFirstLayer
        own = weights_of(layer, rope, ops.arranged, norms_input=index > 0)
        kernels = ops.layer_kernels(own)
        layer.forward = kind(layer, layer.forward, ops, kernels)
    _fuse_linear(head.fc, ops)
    if head.spec.vocabulary is not None:
        _fuse_linear(head.lm_head, ops)
    for norm in _norms_of_features(head):
        norm.forward = FusedNorm(norm, norm.forward, ops)
    head.forward = FusedHead(head, head.forward, ops)  # type: ignore[method-assign]
    if head.fc.weight.is_cuda:
        torch.cuda.empty_cache()  # where weights lay before they were joined


class FusedFirstLayer(FusedLayer):
    """The first layer, whose input only ``FusedHead`` makes: called alone it is the module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


class FusedHead(Fused):
    """The forward of a head, from tokens and states to states and logits.

    Where only keys and values are wanted, the last layer computes no more than these.
    """

    def __init__(self, head: Head, forward: Callable[..., Any], ops: Ops) -> None:
        super().__init__(head, forward, ops)
        spec, embedding = head.spec, head.embed_tokens.weight
        assert isinstance(embedding, Tensor)
        self._layers: list[Any] = [layer.forward for layer in head.layers]
        norms = None
        if spec.kind == "eagle3":
            first: Any = head.layers[0]
            norms = HeadNorms(
                embedding=first.input_layernorm.weight,
                state=first.hidden_norm.weight,
                eps=first.hidden_norm.variance_epsilon,
                residual=spec.norms_residual,
            )
        self._input = ops.head_input(embedding, norms)
        self._fc = None if norms else _product(head.fc, ops)
        self._norm: Norm | None = None
        if spec.final_norm:
            norm: Any = head.norm
            self._norm = ops.rms_norm(norm.weight, norm.variance_epsilon)
        self._lm_head = _product(head.lm_head, ops)
        self._feeds_normed, self._vocabulary = spec.feeds_normed, len(head.target_ids)
        self._rotary: Any = head.rotary_emb

    def __call__(
        self,
        tokens: Tensor,
        states: Tensor,
        positions: Tensor,
        rows: Tensor | int | None = 0,
        parents: Tensor | None = None,
        **attention: Any,
    ) -> Any:
        call = attention.get("specx_call")
        if type(call) not in (PrefillCall, TreeCall) or not self.takes(states):
            return self.forward(tokens, states, positions, rows, parents, **attention)
        assert isinstance(call, PrefillCall | TreeCall)
        out, logits = self.run((tokens[0], states[0], positions[0]), rows, parents, call)
        return out[None], logits[None]

    def run(
        self,
        given: tuple[Tensor, Tensor, Tensor],
        rows: Tensor | int | None,
        parents: Tensor | None,
        call: PrefillCall | TreeCall,
    ) -> tuple[Tensor, Tensor]:
        """Compute ``Head.forward`` of ``given``: tokens, states and positions without a batch."""
        tokens, states, positions = given
        rotary = self._rotary
        # In front of everything that is launched early (``Ops.rotary_angles``).
        angles = self.ops.rotary_angles(
            positions.contiguous(), rotary.inv_freq, rotary.attention_scaling, states.dtype
        )
        x, residual = self._input(tokens, states, parents)
        if self._fc is not None:
            x = residual = self._fc(x)
        *others, last = self._layers
        for layer in others:
            x = residual = layer.run(x, *angles, call, residual=residual)
        if rows is None:
            last.fill(x, *angles, call)
            return states[:0], states.new_empty(0, self._vocabulary)
        x = last.run(x, *angles, call, rows, residual)
        return self._behind(x)

    def _behind(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return states and logits behind the last layer's x [T, H]."""
        if self._norm is None:
            return x, self._lm_head(x)
        normed = self._norm(x)
        return normed if self._feeds_normed else x, self._lm_head(normed)


def _is_known(head: Head) -> bool:
    """Return True if all of a head computes what the kernels do, in one format."""
    first, *others = head.layers
    norms = [first.input_layernorm, first.hidden_norm] if head.spec.kind == "eagle3" else []
    known = isinstance(first, EagleFirstLayer) if norms else True
    maps = [head.embed_tokens, head.lm_head]
    return (
        known
        and has_known_parts(first, *norms)
        and all(is_known(layer) for layer in others)
        and [type(each) for each in maps] == [nn.Embedding, nn.Linear]
        and {each.weight.dtype for each in maps} == {head.fc.weight.dtype}
        and head.rotary_emb.inv_freq.dtype == torch.float32
    )


def _norms_of_features(head: Head) -> list[Any]:
    """Return the norms in front of ``fc``."""
    if head.spec.feature_norm == "all":
        return [head.input_norm]
    return list(head.fc_norm) if head.spec.feature_norm == "each" else []


def _fuse_linear(module: Any, ops: Ops) -> None:
    weight, bias = join([module], ops.arranged)
    module.forward = FusedLinear(module, module.forward, ops, ops.product(LinearMap(weight, bias)))


def _product(module: Any, ops: Ops) -> Product:
    """Return the product of a linear map, the one that it has if it is fused."""
    forward = module.forward
    if isinstance(forward, FusedLinear):
        return forward.product
    return ops.product(LinearMap(module.weight, module.bias))
