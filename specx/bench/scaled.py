"""The scaled pair: the embedded models inside models of public sizes, their functions unchanged.

Large weights are not at hand offline, and random ones accept nothing. A small Llama written into
a large one costs what the large one costs and says what the small one says. The rules below keep
its function; every weight that they leave open is random, because arithmetic on zeros runs faster
than on real data. Tables made with such models are labelled ``scaled mini``.
"""

import copy
from collections.abc import Collection
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from specx.bench.scaled_head import scaled_head
from specx.bench.scaled_weights import (
    check_frequencies,
    check_holds,
    exact,
    fill_randomly,
    place_heads,
    scaled_layer,
    write_attention,
    write_feed_forward,
    write_norm,
    write_rows,
)
from specx.bench.shapes import DRAFTS, HEAD, TARGETS, HeadShape, Shape, draft_shape
from specx.engine.methods import Pair, with_layer
from specx.errors import UsageError
from specx.models import attention as dispatch
from specx.models.architecture import read_config
from specx.models.compat import check_pair, head_facts
from specx.models.fused_layers import fuse_layers
from specx.models.load import LoadedModel, ModelSpec, Role, load_model, usable
from specx.models.memory import check_memory
from specx.models.modules import in_memory
from specx.models.source import locate
from specx.profile import Profile


def scaled_pair(
    target: str,
    draft: str,
    device: str | torch.device,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> Pair:
    """Return the embedded pair in the shapes ``TARGETS[target]`` and ``DRAFTS[draft]``, on
    ``device``. The draft ``eagle3`` is the embedded head.

    A draft model gets the target's vocabulary. Tokenizer, window, RoPE and end of text are those of
    the embedded models.

    Raises UsageError for a name or a device that does not exist, OutOfMemoryError before anything
    is built when the weights of both do not fit.
    """
    shape = TARGETS[_known(TARGETS, target, "target")]
    own = draft_shape(_known((*DRAFTS, HEAD), draft, "draft"), shape)
    device, rows = usable(device), shape.vocab_size
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what torch keeps of an earlier pair is free
    needed = sum(each.parameters(rows) for each in (shape, own)) * dtype.itemsize
    kind = str(dtype).removeprefix("torch.")
    check_memory(needed, device, f"The scaled pair {target} and {draft} in {kind}")
    small = _embedded("target")
    large = _scaled(small, shape, rows, dtype, device, seed)
    if isinstance(own, HeadShape):
        head = scaled_head(small, large, own, seed)
        facts = head_facts(large, head)
        return Pair(large, facts.target_allowed, head, facts.draft_allowed)
    large_draft = _scaled(_embedded("draft"), own, rows, dtype, device, seed)
    facts = check_pair(large, large_draft)
    return Pair(large, facts.target_allowed, large_draft, facts.draft_allowed)


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
    shape = TARGETS[_known(TARGETS, target, "target")]
    return with_layer(profile, scaled_layer(layer, config.num_hidden_layers, shape.num_layers))


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
    check_holds(small.config, shape, rows)
    config = _large_config(small.config, shape, rows)
    large: LlamaForCausalLM = random_model(config, dtype, device, seed)
    check_frequencies(small.model.rotary_emb, large.model.rotary_emb)
    large.generation_config = copy.deepcopy(small.generation_config)
    _write_vocabulary(small, large)
    first = scaled_layer(0, small.config.num_hidden_layers, shape.num_layers)
    for layer in large.model.layers[:first]:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    heads = place_heads(small.config, shape)
    for ours, layer in zip(small.model.layers, large.model.layers[first:], strict=True):
        write_attention(ours.self_attn, layer.self_attn, heads)
        write_feed_forward(ours.mlp, layer.mlp)
        for name in ("input_layernorm", "post_attention_layernorm"):
            write_norm(getattr(ours, name), getattr(layer, name))
    write_norm(small.model.norm, large.model.norm)
    return large


def _write_vocabulary(small: LlamaForCausalLM, large: LlamaForCausalLM) -> None:
    """Write embedding and head. The embedding writes to the first d elements only; the head may
    read the zeros beyond."""
    embedding, head = large.model.embed_tokens.weight, large.lm_head.weight
    write_rows(exact(small.lm_head, head), head)
    write_rows(exact(small.model.embed_tokens, embedding), embedding)
    embedding[:, small.config.hidden_size :] = 0


def random_model(config: Any, dtype: torch.dtype, device: str | torch.device, seed: int) -> Any:
    """Return a model of normal weights, made on its device: the host never holds it."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to_empty(device=device)
    model.tie_weights()  # moving takes tied weights apart
    # Frequencies are no weights and were lost on the way. Made on the CPU as those of models that
    # are loaded: a GPU's powers may differ in the last bit.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    model = model.eval().requires_grad_(False)
    fill_randomly(model.parameters(), seed)
    return model


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


def _known(names: Collection[str], name: str, role: Role) -> str:
    if name not in names:
        raise UsageError(f"there is no scaled {role} {name}; choose from {', '.join(names)}")
    return name


def _embedded(role: Role) -> LoadedModel:
    return load_model(ModelSpec(f"embedded:{role}", dtype="float32"), "cpu", role, modules=True)


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
