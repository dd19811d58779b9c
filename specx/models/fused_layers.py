"""Decoder layers in a few launches each: products, attention, and a kernel between each two.

The modules stay those of transformers, with their weights; ``fuse_layers`` puts another ``forward``
before their own. It runs where it knows exactly what the module computes, and passes everything
else on: another attention, other kinds of layers. The kernels are the backend's (``Ops``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from specx.kernels.layers import LayerKernels, LayerWeights, LinearMap, Product
from specx.kernels.ops import Ops
from specx.models.call import PrefillCall, TreeCall
from specx.models.features import FeatureHook
from specx.models.module_weights import norms_of_heads, rope_of, rotates, weights_of
from specx.models.projections import are_alike
from specx.models.whole_pass import run_at_once, whole_pass_of

# Families whose layers are alike but for biases, norms of heads and layers without positions -> how
# their classes begin.
FAMILIES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "smollm3": "SmolLM3",
}
FIXED = frozenset({"default", "linear", "llama3", "yarn"})  # kinds of rotary frequencies


def fuse_layers(model: Any, ops: Ops) -> None:
    """Have the backend compute the layers of a model, where it gains by that. Idempotent.

    A model whose layers are not all of a known family is left as it is. Weights must not change
    afterwards: copies may be read in their place.
    """
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", ())
    if not ops.fuses(model.dtype) or not layers or is_fused(model):
        return
    if not all(is_known(layer) for layer in layers):
        return
    rotary = decoder.rotary_emb
    rope = rope_of(rotary)
    weights = [weights_of(layer, rope, ops.arranged) for layer in layers]
    for layer, own in zip(layers, weights, strict=True):
        layer.forward = FusedLayer(layer, layer.forward, ops, ops.layer_kernels(own))
    if _is(decoder.norm, "RMSNorm"):
        decoder.norm.forward = FusedNorm(decoder.norm, decoder.norm.forward, ops)
    if _is(rotary, "RotaryEmbedding") and rotary.rope_type in FIXED:
        rotary.forward = FusedAngles(rotary, rotary.forward, ops)
    head = model.get_output_embeddings()
    if _is_plain(head):
        # It may be the embedding as well, so it stays the same parameter, with the same values.
        head.weight.data = ops.arranged(head.weight.data)
        product = ops.product(LinearMap(head.weight, head.bias))
        head.forward = FusedLinear(head, head.forward, ops, product)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # where weights lay before they were joined
    elif _is_whole(model):
        model.forward = FusedModel(model, model.forward, ops, weights)


def fused_model_of(model: Any) -> "FusedModel | None":
    """Return the forward of a whole model, if it has one."""
    forward = model.__dict__.get("forward")
    return forward if isinstance(forward, FusedModel) else None


def is_fused(model: Any) -> bool:
    """Return True if the backend computes the layers of a model, as it does of our own decoders."""
    if not isinstance(model, nn.Module):
        return True
    decoder: Any = model
    layers = getattr(decoder.get_decoder(), "layers", ())
    return bool(layers) and all(isinstance(layer.forward, Fused) for layer in layers)


def saved_bytes(model: Any) -> int:
    """Return the bytes of weights that a pass over few rows need not read of a model."""
    forward = fused_model_of(model)
    return 0 if forward is None else forward.saved_bytes


@contextmanager
def unfused(model: Any) -> Iterator[None]:
    """Put the modules back as they were before ``fuse_layers``, until the block ends."""
    replaced = [
        (module, module.__dict__.pop("forward"))
        for module in model.modules()
        if isinstance(module.__dict__.get("forward"), Fused)
    ]
    try:
        yield
    finally:
        for module, forward in replaced:
            module.forward = forward


def is_known(layer: Any) -> bool:
    """Return True if a layer computes what ``LayerKernels`` says, judged by classes and sizes."""
    return _is(layer, "DecoderLayer") and has_known_parts(layer, layer.input_layernorm)


def has_known_parts(layer: Any, *norms_before: Any) -> bool:
    """Return True if attention, MLP and norms of a layer are known, and those in front of it."""
    attention, mlp = layer.self_attn, layer.mlp
    if not (_is(attention, "Attention") and _is(mlp, "MLP")):
        return False
    norms = [*norms_before, layer.post_attention_layernorm, *norms_of_heads(attention)]
    groups = [attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]
    maps = [*groups[0], *groups[1], attention.o_proj, mlp.down_proj]
    return (
        all(_is(norm, "RMSNorm") for norm in norms)
        and all(_is_plain(each) for each in maps)
        and all(are_alike(group) for group in groups)
        and len({each.weight.dtype for each in (*maps, *norms)}) == 1
        and attention.config.hidden_act in ("silu", "swish")
        and attention.head_dim % 16 == 0
        and attention.head_dim <= 256
    )


def _is_plain(module: Any) -> bool:
    """Return True for a linear map of exactly that class.

    Quantized maps and adapters compute in ways of their own.
    """
    return type(module) is nn.Linear


def _is(module: Any, part: str) -> bool:
    """Return True for transformers' own class of a family, without importing all families."""
    kind = type(module)
    return any(
        (kind.__module__, kind.__name__)
        == (f"transformers.models.{family}.modeling_{family}", f"{prefix}{part}")
        for family, prefix in FAMILIES.items()
    )


@dataclass
class Fused:
    """A forward that stands before ``forward``, the own one of ``module``."""

    module: Any
    forward: Callable[..., Any]
    ops: Ops

    def takes(self, x: Tensor) -> bool:
        """Return True for hidden states [1, T, K] that the backend computes."""
        return len(x) == 1 and self.ops.fuses(x.dtype) and not x.requires_grad


@dataclass
class FusedLayer(Fused):
    """The forward of a decoder layer."""

    kernels: LayerKernels

    def __post_init__(self) -> None:
        attention = self.module.self_attn
        self._layer, self._scaling = attention.layer_idx, attention.scaling
        self._rotates = rotates(attention)

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        call = kwargs.get("specx_call")
        # Calls of other classes attend in another way, which the layer's own forward lets them.
        if type(call) not in (PrefillCall, TreeCall) or args or not self.takes(hidden_states):
            return self.forward(hidden_states, *args, **kwargs)
        assert call is not None
        cos, sin = kwargs["position_embeddings"]
        return self.run(hidden_states[0], cos[0], sin[0], call)[None]

    def run(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        call: PrefillCall | TreeCall,
        rows: Tensor | int = 0,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Compute the layer: x [T, inputs]; cos, sin [T, D] -> [T, K].

        ``rows``: those to return alone (int64), or how many of the last; 0: all. ``residual``
        [T, K]: what attention is added to, x unless it is given.
        """
        q = self.fill(x, cos, sin, call)
        x = x if residual is None else residual
        if isinstance(rows, int) and rows and isinstance(call, PrefillCall):
            attended = call.attend_last(self._layer, q, self._scaling, rows)
        else:
            attended = rows_of(self.attend(q, call), rows)
        return self.finish(attended, rows_of(x, rows))

    def fill(self, x: Tensor, cos: Tensor, sin: Tensor, call: PrefillCall | TreeCall) -> Tensor:
        """Store keys and values alone, of rows as for ``run``; return queries [Hq, T, D]."""
        keys, values = call.mapping.storage[self._layer].unbind()
        if not self._rotates:  # rotating by nothing is exact, and one kernel serves all layers
            cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
        return self.kernels.before_attention(
            x, cos, sin, call.mapping.slots_of(self._layer), keys, values
        )

    def attend(self, q: Tensor, call: PrefillCall | TreeCall) -> Tensor:
        """Attend from queries [Hq, T, D] where keys and values are stored -> [T, Hq, D]."""
        return call.attend_stored(self._layer, q, self._scaling)

    def finish(self, attended: Tensor, x: Tensor) -> Tensor:
        """Compute what is behind attention [T, Hq, D], which is added to x [T, K] -> [T, K]."""
        return self.kernels.after_attention(attended.flatten(1), x)


@dataclass
class FusedNorm(Fused):
    """The forward of the norm behind the layers."""

    def __post_init__(self) -> None:
        self.norm = self.ops.rms_norm(self.module.weight, self.module.variance_epsilon)

    def __call__(self, hidden_states: Tensor) -> Any:
        if not self.takes(hidden_states):
            return self.forward(hidden_states)
        return self.norm(hidden_states[0].contiguous())[None]


@dataclass
class FusedAngles(Fused):
    """The forward of rotary embeddings whose frequencies are fixed."""

    def __call__(self, x: Tensor, position_ids: Tensor) -> Any:
        rotary = self.module
        if not self.takes(x) or len(position_ids) > 1 or rotary.inv_freq.dtype != torch.float32:
            return self.forward(x, position_ids)
        positions, scaling = position_ids[0].contiguous(), rotary.attention_scaling
        cos, sin = self.ops.rotary_angles(positions, rotary.inv_freq, scaling, x.dtype)
        return cos[None], sin[None]


@dataclass
class FusedLinear(Fused):
    """The forward of a linear map that is no part of a layer."""

    product: Product

    def __call__(self, x: Tensor) -> Any:
        return self.product(x[0])[None] if self.takes(x) else self.forward(x)


class FusedModel(Fused):
    """The forward of a whole model, from tokens to logits.

    What transformers does around its layers, masks and caches and records of outputs, takes a CPU
    as long as two layers of a small model. A prefill computes no more rows of the last layer than
    have logits.
    """

    def __init__(
        self, module: Any, forward: Callable[..., Any], ops: Ops, weights: list[LayerWeights]
    ) -> None:
        """``weights``: of the layers, which are fused."""
        super().__init__(module, forward, ops)
        decoder = module.get_decoder()
        self._embedding, self._norm = decoder.embed_tokens, decoder.norm.forward.norm
        self.layers: list[FusedLayer] = [layer.forward for layer in decoder.layers]
        self._rotary = decoder.rotary_emb.forward
        head = module.get_output_embeddings()
        self._head = head.forward.product
        passed = [module, decoder, self._embedding, decoder.norm, decoder.rotary_emb, head]
        passed += list(decoder.layers)
        self._hooks = [x for m in passed for x in (m._forward_hooks, m._forward_pre_hooks)]
        self._whole = whole_pass_of(module, weights, ops)

    @property
    def saved_bytes(self) -> int:
        return 0 if self._whole is None else self._whole.saved_bytes

    def embed(self, ids: Tensor) -> Tensor:
        """Return what the first layer gets of tokens int64 [T]: [T, K]."""
        return embedding(ids, self._embedding.weight)

    def angles(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, [T, D] each, of positions int64 [T], in the dtype of x."""
        cos, sin = self._rotary(x[None], positions[None])
        return cos[0], sin[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, ids = kwargs.get("specx_call"), kwargs.get("input_ids")
        if ids is None or ids.shape[0] != 1 or not self.serves(call):
            return self.forward(*args, **kwargs)
        kept, positions = kwargs.get("logits_to_keep", 0), kwargs["position_ids"][0]
        return SimpleNamespace(logits=self.run(ids[0], positions, call, kept)[None])

    def serves(self, call: object) -> TypeGuard[PrefillCall | TreeCall]:
        """Return True if ``run`` may take the place of the module's own forward.

        Not if somebody wants to see what goes in or out of a module, which would not be called;
        features are noted without their hooks.
        """
        hooks = (hook for each in self._hooks for hook in each.values())
        return type(call) in (PrefillCall, TreeCall) and (
            not any(self._hooks) or all(isinstance(hook, FeatureHook) for hook in hooks)
        )

    def run(
        self, ids: Tensor, positions: Tensor, call: PrefillCall | TreeCall, kept: Tensor | int
    ) -> Tensor:
        """Compute logits [rows, V] of tokens int64 [T] at positions int64 [T].

        ``kept``: the rows that have logits, or how many of the last; 0 means all.
        """
        logits = run_at_once(self._whole, ids, positions, call, kept)
        if logits is not None:
            return logits
        x = self.embed(ids)
        cos, sin = self.angles(x, positions)
        features, count = call.features, len(self.layers)
        # Of the last layer the rows that have logits are enough, unless others are noted.
        last = 0 if features is not None and features.source.is_behind(count) else kept
        for index, layer in enumerate(self.layers):
            if features is not None:
                features.note_layer(x[None], index)
            rows = last if index == count - 1 else 0
            x = layer.run(x, cos, sin, call, rows)
        if features is not None:
            features.note_layer(x[None], count)
        x = self._norm(x)
        if features is not None:
            features.note_output(x[None])
        return self._head(x if last is kept else rows_of(x, kept))


def rows_of(x: Tensor, rows: Tensor | int) -> Tensor:
    """Return rows (int64) of x [T, ...], or how many of the last; 0 means all."""
    if isinstance(rows, int):
        return x[-rows:] if rows else x
    return x.index_select(0, rows)


def _is_whole(model: Any) -> bool:
    """Return True if a model with fused layers does nothing else than ``FusedModel``."""
    decoder = model.get_decoder()
    parts = decoder.norm, decoder.rotary_emb, model.get_output_embeddings()
    return (
        _is(model, "ForCausalLM")
        and _is(decoder, "Model")
        and type(decoder.embed_tokens) is nn.Embedding
        and all(isinstance(part.forward, Fused) for part in parts)
    )
