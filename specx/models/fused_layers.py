"""Decoder layers in a few launches each: products, attention, and a kernel between each.

The modules stay those of transformers, with their weights; ``fuse_layers`` puts another ``forward``
before their own, which runs where it knows exactly what the module computes and passes everything
else on: another attention, other kinds of layers. Chunks of a prefill and trees go the same way;
a single row has products of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from specx.kernels import fused
from specx.kernels.hopper import product as cuda_product
from specx.kernels.hopper.product import CudaProduct, GatedProduct, HeadsProduct, product_of
from specx.kernels.torch.attention import prefill_attention
from specx.models.call import AttentionCall
from specx.models.projections import are_alike, join

if fused.IS_AVAILABLE:
    from specx.kernels.triton import layer as triton_layer
    from specx.kernels.triton import product as triton_product
    from specx.kernels.triton import row_product as triton_row
    from specx.kernels.triton import tree_attention as triton_tree

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # the same, but for biases and norms of heads
FIXED = frozenset({"default", "linear", "llama3", "yarn"})  # kinds of rotary frequencies
HALF = {torch.float16, torch.bfloat16}  # float32 is for who wants transformers' own numbers
FEW_ROWS = 64  # more take longer to be added to within a product than behind it


def fuse_layers(model: Any) -> None:
    """Have the layers computed by the kernels, in a model on a GPU, in half precision, and of a
    known family; any other is left alone. Idempotent."""
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", ())
    if not (
        fused.IS_AVAILABLE
        and fused.serves(next(model.parameters()))
        and model.dtype in HALF
        and layers
        and all(is_known(layer) for layer in layers)
        and not is_fused(model)
    ):
        return
    for layer in layers:
        layer.forward = FusedLayer.before(layer)
    if _is(decoder.norm, "RMSNorm"):
        decoder.norm.forward = FusedNorm(decoder.norm, decoder.norm.forward)
    if _is(decoder.rotary_emb, "RotaryEmbedding") and decoder.rotary_emb.rope_type in FIXED:
        decoder.rotary_emb.forward = FusedAngles(decoder.rotary_emb, decoder.rotary_emb.forward)
    head = model.get_output_embeddings()
    if _is_plain(head):
        head.forward = FusedHead.before(head)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # where weights lay before they were joined


def is_fused(model: Any) -> bool:
    """Whether the layers of a model are computed by the kernels."""
    layers = getattr(model.get_decoder(), "layers", ())
    return bool(layers) and all(isinstance(layer.forward, Fused) for layer in layers)


@contextmanager
def unfused(model: Any) -> Iterator[None]:
    """The modules as they were before ``fuse_layers``, until the block ends."""
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
    """Whether a decoder layer computes what the kernels do: its classes are known ones, and so are
    its sizes."""
    if not _is(layer, "DecoderLayer"):
        return False
    attention, mlp = layer.self_attn, layer.mlp
    if not (_is(attention, "Attention") and _is(mlp, "MLP")):
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm, *_norms_of_heads(attention)]
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
    """Whether it is a linear map of exactly that class: quantized maps and adapters compute in ways
    of their own."""
    return type(module) is nn.Linear


def _norms_of_heads(attention: Any) -> list[Any]:
    """Of queries and keys, in Qwen3."""
    return [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]


def _is(module: Any, part: str) -> bool:
    """Whether the class is transformers' own of a family, found without importing all of them."""
    kind = type(module)
    return any(
        (kind.__module__, kind.__name__)
        == (f"transformers.models.{family}.modeling_{family}", f"{family.title()}{part}")
        for family in FAMILIES
    )


def _fits(x: Tensor) -> bool:
    """Whether a pass over hidden states [1, T, K] is one for the kernels."""
    return len(x) == 1 and x.dtype in HALF and not x.requires_grad


@dataclass
class Fused:
    """What stands before ``forward``, the own one of ``module``."""

    module: Any
    forward: Callable[..., Any]


@dataclass
class Joined:
    """Linear maps of one input: weight [R, I], bias [R] or None."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass
class Products:
    """The products of a layer with few rows. ``heads``: with what follows it, unless that is more
    than rotation."""

    heads: CudaProduct | HeadsProduct
    out: CudaProduct
    gate_up: GatedProduct
    down: CudaProduct

    @classmethod
    def of(cls, attention: Any, mlp: Any, heads: Joined, gate_up: Joined) -> "Products | None":
        """Of a layer's linear maps, if the kernels for all of them can be had."""
        found = [
            product_of(CudaProduct, heads.weight, heads.bias)
            if _norms_of_heads(attention)
            else product_of(HeadsProduct, heads.weight, heads.bias, head_dim=attention.head_dim),
            product_of(CudaProduct, attention.o_proj.weight, attention.o_proj.bias),
            product_of(GatedProduct, gate_up.weight, gate_up.bias),
            product_of(CudaProduct, mlp.down_proj.weight, mlp.down_proj.bias),
        ]
        return None if None in found else cls(*found)  # type: ignore[arg-type]


@dataclass
class FusedLayer(Fused):
    """The forward of a decoder layer.

    ``heads``: queries, keys and values; ``gate_up``: both inputs of the gate. ``counters``: for the
    small products of ``triton_product``; None where others are faster. ``few``: for a tree, where
    weights are large and the device has them.
    """

    heads: Joined
    gate_up: Joined
    counters: Tensor | None
    few: Products | None

    @classmethod
    def before(cls, layer: Any) -> "FusedLayer":
        """Of a known layer. Joins its weights."""
        attention, mlp = layer.self_attn, layer.mlp
        heads = Joined(*join([attention.q_proj, attention.k_proj, attention.v_proj]))
        gate_up = Joined(*join([mlp.gate_proj, mlp.up_proj]))
        small = all(
            each.bias is None and triton_product.suits(each.weight)
            for each in (attention.o_proj, mlp.down_proj)
        )
        counters = triton_product.counters(heads.weight.device) if small else None
        few = None if small else Products.of(attention, mlp, heads, gate_up)
        return cls(layer, layer.forward, heads, gate_up, counters, few)

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        call = kwargs.get("specx_call")
        if (
            isinstance(call, AttentionCall)
            and not call.masked
            and _fits(hidden_states)
            and not args
        ):
            cos, sin = kwargs["position_embeddings"]
            run = self._way(hidden_states.shape[1])
            return run(hidden_states[0], cos[0], sin[0], call)[None]
        return self.forward(hidden_states, *args, **kwargs)

    def _way(self, rows: int) -> Callable[..., Tensor]:
        if rows == 1:
            return self.run_row
        return self.run if self.few is None or rows > cuda_product.MOST_ROWS else self.run_few

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, call: AttentionCall) -> Tensor:
        """x [T, K]; cos, sin [T, D] -> [T, K]."""
        norm, behind = self.module.input_layernorm, self.module.post_attention_layernorm
        out, down = self.module.self_attn.o_proj, self.module.mlp.down_proj
        y = triton_layer.rms_norm(x, norm.weight, norm.variance_epsilon)
        attended = self._attend(self._rotate(self.heads(y), cos, sin, call), call)
        weight, eps = behind.weight, behind.variance_epsilon
        if self.counters is not None and len(x) <= triton_product.MOST_ROWS:
            x = triton_product.add_product(attended, out.weight, x, self.counters)
            inner = triton_layer.gated(self.gate_up(triton_layer.rms_norm(x, weight, eps)))
            return triton_product.add_product(inner, down.weight, x, self.counters)
        x, y = triton_layer.add_rms_norm(x, linear(attended, out.weight, out.bias), weight, eps)
        inner = triton_layer.gated(self.gate_up(y))
        if down.bias is not None or len(x) > FEW_ROWS:
            return x.add_(linear(inner, down.weight, down.bias))
        return x.addmm_(inner, down.weight.t())  # in the product itself, and rounded once

    def run_few(self, x: Tensor, cos: Tensor, sin: Tensor, call: AttentionCall) -> Tensor:
        """The same for up to 64 rows and large weights."""
        assert self.few is not None
        assert call.rows is not None
        norm, behind = self.module.input_layernorm, self.module.post_attention_layernorm
        y = triton_layer.rms_norm(x, norm.weight, norm.variance_epsilon)
        if isinstance(self.few.heads, HeadsProduct):
            keys, values = call.rows.storage[self.module.self_attn.layer_idx]
            q = self.few.heads(y, cos, sin, call.rows.places, keys, values)
        else:
            q = self._rotate(self.few.heads(y), cos, sin, call)
        x = self.few.out(self._attend(q, call), x)
        y = triton_layer.rms_norm(x, behind.weight, behind.variance_epsilon)
        return self.few.down(self.few.gate_up(y), x)

    def run_row(self, x: Tensor, cos: Tensor, sin: Tensor, call: AttentionCall) -> Tensor:
        """The same for a single row."""
        norm, behind = self.module.input_layernorm, self.module.post_attention_layernorm
        out, down = self.module.self_attn.o_proj, self.module.mlp.down_proj
        y = triton_layer.rms_norm(x, norm.weight, norm.variance_epsilon)
        qkv = triton_row.row_product(y, self.heads.weight, self.heads.bias)
        attended = self._attend(self._rotate(qkv, cos, sin, call), call)
        x = triton_row.row_product(attended, out.weight, out.bias, x)
        y = triton_layer.rms_norm(x, behind.weight, behind.variance_epsilon)
        inner = triton_row.gated_row_product(y, self.gate_up.weight, self.gate_up.bias)
        return triton_row.row_product(inner, down.weight, down.bias, x)

    def _rotate(self, qkv: Tensor, cos: Tensor, sin: Tensor, call: AttentionCall) -> Tensor:
        """qkv [T, (Hq + 2 Hkv) · D] -> queries [Hq, T, D]; keys and values are stored."""
        assert call.rows is not None
        attention = self.module.self_attn
        keys, values = call.rows.storage[attention.layer_idx]
        norms = None
        if of_heads := _norms_of_heads(attention):
            query, key = of_heads
            norms = query.weight, key.weight, query.variance_epsilon
        places = call.rows.places
        return triton_layer.rotate_and_store(qkv, norms, cos, sin, places, keys, values)

    def _attend(self, q: Tensor, call: AttentionCall) -> Tensor:
        """q [Hq, T, D] -> [T, Hq · D]."""
        assert call.rows is not None
        number, scaling = self.module.self_attn.layer_idx, self.module.self_attn.scaling
        keys, values = call.rows.storage[number]
        lse = None
        if call.phase == "tree":
            assert call.prefix is not None
            assert call.visible is not None
            attended, lse = triton_tree.tree_attention(
                q, keys, values, call.prefix, call.visible, scaling
            )
        else:
            out = prefill_attention(q[None], keys[None], values[None], scaling, call)
            attended = out[0].transpose(0, 1)
        if call.watched is not None and call.watched.layer == number:
            call.watched.note(q, lse)
        return attended.flatten(1)


@dataclass
class FusedNorm(Fused):
    """The forward of the norm behind the layers."""

    def __call__(self, hidden_states: Tensor) -> Any:
        if not _fits(hidden_states):
            return self.forward(hidden_states)
        norm = self.module
        x = hidden_states[0].contiguous()
        return triton_layer.rms_norm(x, norm.weight, norm.variance_epsilon)[None]


@dataclass
class FusedAngles(Fused):
    """The forward of rotary embeddings whose frequencies are fixed."""

    def __call__(self, x: Tensor, position_ids: Tensor) -> Any:
        rotary = self.module
        if not _fits(x) or len(position_ids) > 1 or rotary.inv_freq.dtype != torch.float32:
            return self.forward(x, position_ids)
        positions, scaling = position_ids[0].contiguous(), rotary.attention_scaling
        cos, sin = triton_layer.angles(positions, rotary.inv_freq, scaling, x.dtype)
        return cos[None], sin[None]


@dataclass
class FusedHead(Fused):
    """The forward of the map to logits. ``few``: for up to 64 rows, where the device has it."""

    few: CudaProduct | None

    @classmethod
    def before(cls, head: Any) -> "FusedHead":
        return cls(head, head.forward, product_of(CudaProduct, head.weight, head.bias))

    def __call__(self, x: Tensor) -> Any:
        head = self.module
        if not _fits(x) or x.shape[1] > cuda_product.MOST_ROWS:
            return self.forward(x)
        if x.shape[1] == 1:
            return triton_row.row_product(x[0], head.weight, head.bias)[None]
        return self.forward(x) if self.few is None else self.few(x[0].contiguous())[None]
