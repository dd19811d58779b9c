"""The scaled head: the embedded EAGLE-3 head in the shape of a published one.

Its function is unchanged. It is written as a checkpoint in memory and loaded like any other, so it
is checked and computed as they are. Its features lie where the target's real layers are, the last
ones: a setting, which costs nothing.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specx.bench.scaled_weights import (
    check_frequencies,
    check_holds,
    columns_of,
    exact,
    fill_randomly,
    place_heads,
    scaled_layer,
    write_attention,
    write_feed_forward,
    write_norm,
    write_rows,
)
from specx.bench.shapes import HeadShape
from specx.errors import ModelError
from specx.models.head import Head, config_of
from specx.models.head_config import IDS, HeadChoices
from specx.models.head_files import HeadFiles, LoadedHead, open_head
from specx.models.head_modules import load_head_modules
from specx.models.head_spec import HeadSpec
from specx.models.load import LoadedModel, ModelSpec

EMBEDDED = ModelSpec("embedded:head", dtype="float32")
NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def scaled_head(
    small_target: LoadedModel, target: LoadedModel, shape: HeadShape, seed: int
) -> LoadedHead:
    """Return the embedded head in ``shape``, for the large form ``target`` of ``small_target``."""
    files = open_head(EMBEDDED, small_target.device)
    assert files is not None
    small = load_head_modules(files, EMBEDDED, small_target, HeadChoices())
    return scale_head(small, small_target.num_layers, target, shape, seed)


@torch.no_grad()
def scale_head(
    small: LoadedHead, small_layers: int, target: LoadedModel, shape: HeadShape, seed: int = 0
) -> LoadedHead:
    """Return a head of ``shape`` that drafts for ``target`` what ``small`` drafts for its own.

    ``target``: the large form (``scale``) of a target with ``small_layers`` layers. Ids that the
    small head lacks follow its own, and their logit is the mean logit.

    Raises ModelError when the shape does not hold the head, or for one with unusual flags.
    """
    check_holds(small.model.config, replace(shape, vocab_size=target.vocab_size), target.vocab_size)
    if problem := next(_problems(small, shape), None):
        raise ModelError(f"A head cannot be scaled to {shape.name}: {problem}.")
    places = (scaled_layer(each, small_layers, target.num_layers) for each in small.spec.features)
    spec = replace(
        small.spec,
        config=_large_config(small.model.config, shape, target.vocab_size).to_dict(),
        features=tuple(places),
        feature_size=shape.hidden_size,
        vocabulary=shape.vocab_size,
    )
    head, weights = _random_head(spec, target, seed)
    check_frequencies(small.model.rotary_emb, LlamaRotaryEmbedding(config_of(spec)))
    _write(small.model, head, shape)
    tensors = {**weights, "d2t": _target_ids(small, target, shape) - torch.arange(shape.vocab_size)}
    source = f"scaled mini {shape.name}"
    files = HeadFiles(f"The draft {source}", _raw_config(spec), tensors)
    return load_head_modules(files, ModelSpec(source), target, HeadChoices())


def _problems(small: LoadedHead, shape: HeadShape) -> Iterator[str]:
    spec, rows = small.spec, len(small.model.target_ids)
    usual = HeadSpec(
        kind="eagle3",
        config=spec.config,
        features=spec.features,
        feature_size=spec.config["hidden_size"],
        vocabulary=spec.vocabulary,
        embeds=False,
    )
    if (
        spec != usual
        or spec.config["model_type"] != "llama"
        or spec.config["num_hidden_layers"] != 1
    ):
        yield "it is none of EAGLE-3 with one layer and usual flags"
    if rows > shape.vocab_size:
        yield f"its vocabulary is {rows}, more than {shape.vocab_size}"


def _write(small: Head, large: Head, shape: HeadShape) -> None:
    """Write the weights of a head; features and states are zero beyond those of the small one."""
    width, fc = small.fc.out_features, large.fc.weight
    fc[:width, columns_of(small.fc, large.fc, len(small.spec.features))] = exact(small.fc, fc).to(
        fc.dtype
    )
    fc[width:] = 0
    (ours,), (theirs,) = small.layers, large.layers
    heads = place_heads(small.config, shape)
    write_attention(ours.self_attn, theirs.self_attn, heads, states=2)
    write_feed_forward(ours.mlp, theirs.mlp)
    for name in NORMS:
        write_norm(getattr(ours, name), getattr(theirs, name))
    write_norm(small.norm, large.norm)
    lm_head: Any = large.lm_head
    write_rows(exact(small.lm_head, lm_head.weight), lm_head.weight)


def _random_head(spec: HeadSpec, target: LoadedModel, seed: int) -> tuple[Head, dict[str, Tensor]]:
    """Make a head of normal weights on the target's device, and give its own weights by name."""
    model = target.model
    with torch.device("meta"):
        head = Head(spec, model.get_input_embeddings(), model.get_output_embeddings())
    own = {name: weight for name, weight in head.named_parameters() if weight.is_meta}
    weights = {
        name: torch.empty(weight.shape, dtype=target.dtype, device=target.device)
        for name, weight in own.items()
    }
    fill_randomly(weights.values(), seed)
    head.load_state_dict(weights, assign=True, strict=False)
    return head, weights


def _large_config(small: LlamaConfig, shape: HeadShape, rows: int) -> LlamaConfig:
    return LlamaConfig(
        **(shape.config() | {"vocab_size": rows}),
        hidden_act=small.hidden_act,
        rms_norm_eps=small.rms_norm_eps * small.hidden_size / shape.hidden_size,
        rope_parameters=copy.deepcopy(small.rope_parameters),
    )


def _raw_config(spec: HeadSpec) -> dict[str, object]:
    """Return the config.json of a head in SpecForge's layout, which counts layers' outputs."""
    return {
        **spec.config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": spec.vocabulary,
        "eagle_config": {IDS: [layer - 1 for layer in spec.features]},
    }


def _target_ids(small: LoadedHead, target: LoadedModel, shape: HeadShape) -> Tensor:
    """Return the target's id of each id of the large head: the small head's, then others."""
    own = small.model.target_ids.cpu()
    others = torch.ones(target.vocab_size, dtype=torch.bool).index_fill(0, own, False)
    return torch.cat([own, others.nonzero().flatten()])[: shape.vocab_size]
