"""The scaled pair: the embedded models inside models of public sizes, their functions unchanged.

Large weights are not at hand offline, and random ones accept nothing. A small Llama written into
a large one costs what the large one costs and says what the small one says. The rules below keep
its function; every weight that they leave open is random, because arithmetic on zeros runs faster
than on real data. Tables made with such models are labelled ``scaled mini``.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaRotaryEmbedding

from specx.bench.shapes import DRAFTS, TARGETS, Shape
from specx.engine.methods import Pair, with_layer
from specx.errors import ModelError, UsageError
from specx.models import attention as dispatch
from specx.models.architecture import read_config
from specx.models.compat import check_pair
from specx.models.fused_layers import fuse_layers
from specx.models.load import LoadedModel, ModelSpec, Role, in_memory, load_model, usable
from specx.models.memory import check_memory
from specx.models.source import locate
from specx.profile import Profile

STD = 0.02  # of the weights that are left open: activations keep the size they have in real models


def scaled_pair(
    target: str,
    draft: str,
    device: str | torch.device,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> Pair:
    """Return the embedded pair in the shapes ``TARGETS[target]`` and ``DRAFTS[draft]``, on
    ``device``.
    The draft gets the target's vocabulary. Tokenizer, window, RoPE and end of text are those of
    the embedded models.

    Raises UsageError for a name or a device that does not exist, OutOfMemoryError before anything
    is built when the weights of both do not fit.
    """
    shapes = _named(TARGETS, target, "target"), _named(DRAFTS, draft, "draft")
    device, rows = usable(device), shapes[0].vocab_size
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what torch keeps of an earlier pair is free
    needed = sum(shape.parameters(rows) for shape in shapes) * dtype.itemsize
    kind = str(dtype).removeprefix("torch.")
    check_memory(needed, device, f"The scaled pair {target} and {draft} in {kind}")
    roles: tuple[Role, Role] = ("target", "draft")
    large_target, large_draft = (
        _scaled(_embedded(role), shape, rows, dtype, device, seed)
        for role, shape in zip(roles, shapes, strict=True)
    )
    facts = check_pair(large_target, large_draft)
    return Pair(large_target, facts.target_allowed, large_draft, facts.draft_allowed)


def scaled_profile(profile: Profile, target: str) -> Profile:
    """Return a profile of the embedded pair, already on its device, for the scaled target of that
    name.
    Its retrieval layer becomes the same layer in its new place.
    """
    layer = profile.draft_cache.layer
    if not isinstance(layer, int):
        return profile
    source = locate("embedded:target", None, "target")
    config = read_config(source.folder, source.label)
    shape = _named(TARGETS, target, "target")
    return with_layer(profile, scaled_layer(layer, config.num_hidden_layers, shape))


def scaled_layer(layer: int, small_layers: int, shape: Shape) -> int:
    """Return the place of layer ``layer`` of a model with ``small_layers`` layers in its large
    form.

    Layers that do nothing come first, so that the final layer stays the final one.
    """
    return shape.num_layers - small_layers + layer


@torch.no_grad()
def scale(
    small: LlamaForCausalLM,
    shape: Shape,
    vocab_size: int | None = None,
    *,
    dtype: torch.dtype,
    device: str | torch.device,
    seed: int = 0,
) -> LlamaForCausalLM:
    """Return a Llama of ``shape`` with the logits of ``small``, built on ``device`` from the start.

    ``vocab_size``: rows of its embedding, by default the shape's. Rows that ``small`` lacks are
    the mean of its rows, so their logit is the mean logit and never the largest; still, mask them.

    d and D being the hidden sizes, the factors sqrt(d/D) and sqrt(D/d) of the norms are exact
    where D/d is a power of 4, and logits of the embedded target are equal to 1e-18 of their size
    in float64. Elsewhere each norm rounds once more, and norms compute in float32: 5e-7. Queries
    are multiplied by the square root of the ratio of head sizes, exact in the same way. In other
    formats the rounding of the small model itself is larger than what scaling adds: both are off
    by 1e-6 in float32, 2e-3 in float16 and 2e-2 in bfloat16.

    Raises ModelError when the shape does not hold ``small``.
    """
    rows = shape.vocab_size if vocab_size is None else vocab_size
    _check_holds(small.config, shape, rows)
    large = _random_model(_large_config(small.config, shape, rows), dtype, device, seed)
    _check_frequencies(small, large)
    large.generation_config = copy.deepcopy(small.generation_config)
    _write_vocabulary(small, large)
    first = scaled_layer(0, small.config.num_hidden_layers, shape)
    for layer in large.model.layers[:first]:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    heads = _place_heads(small.config, shape)
    for ours, layer in zip(small.model.layers, large.model.layers[first:], strict=True):
        _write_attention(ours.self_attn, layer.self_attn, heads)
        _write_feed_forward(ours.mlp, layer.mlp)
        for name in ("input_layernorm", "post_attention_layernorm"):
            _write_norm(getattr(ours, name), getattr(layer, name))
    _write_norm(small.model.norm, large.model.norm)
    return large


@dataclass(frozen=True)
class _HeadPlaces:
    """The places of heads in the large model.

    ``sources`` [Hkv of the large model]: the KV head of the small model that each one copies.
    ``queries``: rows of the large q_proj, columns of its o_proj, one for each of the small
    model's. ``keys``: rows of the large k_proj and v_proj, for the small model's rows repeated
    as ``sources`` says. ``stretch``: factor between the head sizes.
    """

    sources: Tensor
    queries: Tensor
    keys: Tensor
    stretch: int


def _place_heads(config: LlamaConfig, shape: Shape) -> _HeadPlaces:
    """Place every small query head where it meets a copy of its own KV head.

    The copies of a KV head are neighbours, and so are the large query heads that read them.
    """
    kv_heads, size = config.num_key_value_heads, config.head_dim
    sources = torch.arange(shape.num_kv_heads) * kv_heads // shape.num_kv_heads
    firsts = torch.searchsorted(sources, torch.arange(kv_heads))  # copies of each, the first
    groups = config.num_attention_heads // kv_heads, shape.num_heads // shape.num_kv_heads
    places = (firsts[:, None] * groups[1] + torch.arange(groups[0])).flatten()
    # Half-split layout: pair i is elements i and i + size/2. The frequency of a pair depends on
    # its place relative to the size of the head.
    stretch = shape.head_dim // size
    pairs = torch.arange(size // 2) * stretch
    elements = torch.cat([pairs, pairs + shape.head_dim // 2])

    def rows(heads: Tensor) -> Tensor:
        return (heads[:, None] * shape.head_dim + elements).flatten()

    return _HeadPlaces(sources, rows(places), rows(torch.arange(shape.num_kv_heads)), stretch)


def _write_attention(small: Any, large: Any, heads: _HeadPlaces) -> None:
    """Write queries, keys, values and output of one layer.

    What has no counterpart in the small model has zero queries: unused elements add nothing to a
    score, and unused heads attend uniformly, so that a mean over heads keeps its order.
    """
    query, out = large.q_proj.weight, large.o_proj.weight
    queries, keys = (rows.to(query.device) for rows in (heads.queries, heads.keys))
    width = small.q_proj.in_features
    used = query[queries]
    used[:, :width] = _exact(small.q_proj, query) * heads.stretch**0.5
    query.zero_()[queries] = used
    for name in ("k_proj", "v_proj"):
        ours, theirs = getattr(small, name), getattr(large, name).weight
        by_head = _exact(ours, theirs).unflatten(0, (-1, small.head_dim))
        repeated = by_head[heads.sources.to(theirs.device)].flatten(0, 1)
        theirs[keys, :width] = repeated.to(theirs.dtype)
    out.zero_()[:width, queries] = _exact(small.o_proj, out).to(out.dtype)


def _write_feed_forward(small: Any, large: Any) -> None:
    units, width = small.gate_proj.weight.shape
    large.gate_proj.weight[:units, :width] = _exact(small.gate_proj, large.gate_proj.weight)
    large.up_proj.weight[:units, :width] = _exact(small.up_proj, large.up_proj.weight)
    large.down_proj.weight.zero_()[:width, :units] = _exact(small.down_proj, large.down_proj.weight)


def _write_norm(small: Any, large: Any) -> None:
    """Write a norm; the large one divides by the root of a mean over D elements, of which d are
    not zero."""
    width = len(small.weight)
    ratio = width / len(large.weight)
    large.weight[:width] = _exact(small, large.weight) * ratio**0.5


def _write_vocabulary(small: LlamaForCausalLM, large: LlamaForCausalLM) -> None:
    """Write embedding and head. The embedding writes to the first d elements only; the head may
    read the zeros beyond."""
    embedding, head = large.model.embed_tokens.weight, large.lm_head.weight
    _write_rows(_exact(small.lm_head, head), head)
    _write_rows(_exact(small.model.embed_tokens, embedding), embedding)
    embedding[:, small.config.hidden_size :] = 0


def _write_rows(small: Tensor, large: Tensor) -> None:
    rows, width = small.shape
    large[:rows, :width] = small.to(large.dtype)
    large[rows:, :width] = small.mean(0).to(large.dtype)


def _exact(module: Any, like: Tensor) -> Tensor:
    """Return the weight of a small module where ``like`` is, in float64: factors are rounded
    once."""
    weight: Tensor = module.weight
    return weight.to(like.device, torch.float64)


def _random_model(
    config: LlamaConfig, dtype: torch.dtype, device: str | torch.device, seed: int
) -> LlamaForCausalLM:
    """Return a model of normal weights, made on its device: the host never holds it."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to_empty(device=device)
    model.tie_weights()  # moving takes tied weights apart
    # Frequencies are no weights and were lost on the way. Made on the CPU as those of models that
    # are loaded: a GPU's powers may differ in the last bit.
    model.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    for weight in model.parameters():
        weight.normal_(1.0 if weight.ndim == 1 else 0.0, STD, generator=generator)
    return model.eval().requires_grad_(False)


def _large_config(small: LlamaConfig, shape: Shape, rows: int) -> LlamaConfig:
    return LlamaConfig(
        **(shape.config() | {"vocab_size": rows}),
        hidden_act=small.hidden_act,
        max_position_embeddings=small.max_position_embeddings,
        rms_norm_eps=small.rms_norm_eps * small.hidden_size / shape.hidden_size,
        rope_parameters=copy.deepcopy(small.rope_parameters),
        tie_word_embeddings=shape.tied,
        bos_token_id=small.bos_token_id,
        eos_token_id=small.eos_token_id,
        pad_token_id=small.pad_token_id,
    )


def _check_holds(config: LlamaConfig, shape: Shape, rows: int) -> None:
    problem = next(_problems(config, shape, rows), None)
    if problem:
        raise ModelError(f"A model cannot be scaled to {shape.name}: {problem}.")


def _problems(config: LlamaConfig, shape: Shape, rows: int) -> Iterator[str]:
    sizes = {
        "hidden size": (config.hidden_size, shape.hidden_size),
        "number of layers": (config.num_hidden_layers, shape.num_layers),
        "feed-forward size": (config.intermediate_size, shape.intermediate_size),
        "number of KV heads": (config.num_key_value_heads, shape.num_kv_heads),
        "vocabulary": (config.vocab_size, rows),
    }
    for what, (ours, theirs) in sizes.items():
        if ours > theirs:
            yield f"its {what} is {ours}, more than {theirs}"
    if shape.head_dim % config.head_dim:
        yield f"its heads of {config.head_dim} do not divide heads of {shape.head_dim}"
    copies = shape.num_kv_heads // config.num_key_value_heads  # or one more
    readers = copies * (shape.num_heads // shape.num_kv_heads)
    needed = config.num_attention_heads // config.num_key_value_heads
    if needed > readers:
        yield f"{needed} of its heads share a KV head, and there is room for {readers}"
    if shape.tied and not config.tie_word_embeddings:
        yield "its lm head is not its embedding"
    if config.attention_bias or config.mlp_bias:
        yield "it has biases"


def _check_frequencies(small: LlamaForCausalLM, large: LlamaForCausalLM) -> None:
    """Refuse kinds of RoPE (yarn) that reckon with the size of the head itself."""
    ours, theirs = (model.model.rotary_emb.inv_freq.cpu() for model in (small, large))
    if not torch.allclose(ours.float(), theirs[:: len(theirs) // len(ours)], rtol=1e-6, atol=0):
        raise ModelError("A model cannot be scaled: its RoPE frequencies depend on its head size.")


def _named(shapes: Mapping[str, Shape], name: str, role: Role) -> Shape:
    if name not in shapes:
        raise UsageError(f"there is no scaled {role} {name}; choose from {', '.join(shapes)}")
    return shapes[name]


def _embedded(role: Role) -> LoadedModel:
    return load_model(ModelSpec(f"embedded:{role}", dtype="float32"), "cpu", role)


def _scaled(
    small: LoadedModel,
    shape: Shape,
    rows: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
) -> LoadedModel:
    """Return a small model in its large form, ready for the engine."""
    model = scale(small.model, shape, rows, dtype=dtype, device=device, seed=seed)
    dispatch.use_in(model)
    loaded = in_memory(model, small.tokenizer, f"scaled mini {shape.name}")
    fuse_layers(model, loaded.ops)
    return loaded
