"""The scaled head: the embedded EAGLE-3 head in the shape of a published one.

Its function is unchanged. It is written as a checkpoint in memory and loaded like any other, so it
is checked and computed as they are. Its features lie where the target's real layers are, the last
ones: a setting, which costs nothing.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from specx.bench.scaled_weights import (
    ScaledTensors,
    check_frequencies,
    check_holds,
    scaled_layer,
    shape_of,
)
from specx.bench.shapes import HeadShape
from specx.errors import ModelError
from specx.models.head_config import IDS, HeadChoices, HeadSpec
from specx.models.head_decoder import decoder_spec, expected_shapes
from specx.models.head_files import HeadFiles, LoadedHead, load_head, open_head
from specx.models.load import LoadedModel, ModelSpec, load_model

EMBEDDED = ModelSpec("embedded:head", dtype="float32")


def scaled_head(target: LoadedModel, shape: HeadShape, seed: int) -> LoadedHead:
    """Return the embedded head in ``shape``, for the large form of the embedded target."""
    small_target = load_model(ModelSpec("embedded:target", dtype="float32"), "cpu", "target")
    files = open_head(EMBEDDED, small_target.device)
    assert files is not None
    small = load_head(files, EMBEDDED, small_target, HeadChoices())
    return scale_head(small, files.tensors, small_target.num_layers, target, shape, seed)


def scale_head(
    small: LoadedHead,
    tensors: dict[str, Tensor],
    small_layers: int,
    target: LoadedModel,
    shape: HeadShape,
    seed: int = 0,
) -> LoadedHead:
    """Return a head of ``shape`` that drafts for ``target`` what ``small`` drafts for its own.

    ``tensors``: of the small head, by name. ``target``: the large form (``scale``) of a target with
    ``small_layers`` layers. Ids that the small head lacks follow its own, and their logit is the
    mean logit.

    Raises ModelError when the shape does not hold the head, or for one with unusual flags.
    """
    label = f"The draft scaled mini {shape.name}"
    ours, _ = decoder_spec(small.spec, label)
    sizes = shape_of(ours, "small")
    check_holds(sizes, shape, target.vocab_size, biased=small.spec.config["attention_bias"])
    if problem := next(_problems(small, shape), None):
        raise ModelError(f"A head cannot be scaled to {shape.name}: {problem}.")
    places = (scaled_layer(each, small_layers, target.num_layers) for each in small.spec.features)
    eps = small.spec.config["rms_norm_eps"] * sizes.hidden_size / shape.hidden_size
    sized = shape.config() | {"vocab_size": target.vocab_size, "rms_norm_eps": eps}
    spec = replace(
        small.spec,
        config={**small.spec.config, **sized},
        features=tuple(places),
        feature_size=shape.hidden_size,
        vocabulary=shape.vocab_size,
    )
    check_frequencies(ours, decoder_spec(spec, label)[0])
    large = ScaledTensors(
        tensors,
        expected_shapes(spec, label),
        (sizes, shape),
        dtype=target.dtype,
        device=target.device,
        seed=seed,
        states={"fc": len(spec.features), **dict.fromkeys(("q_proj", "k_proj", "v_proj"), 2)},
    )
    written = {name: large.joined([name]) for name in large.names}
    written["d2t"] = _target_ids(small, target, shape) - torch.arange(shape.vocab_size)
    files = HeadFiles(label, _raw_config(spec), written)
    return load_head(files, ModelSpec(f"scaled mini {shape.name}"), target, HeadChoices())


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
