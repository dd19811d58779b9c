"""The properties of a model that the engine needs, as numbers."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from specx.errors import ModelError
from specx.ops.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, RopeSpec
from specx.ops.torch.cache import rotate

FIXED = frozenset({"default", "linear", "llama3", "yarn"})
LENGTHENED = frozenset({"linear", "yarn"})  # kinds whose factor lengthens the window
_INCLUDED = frozenset({"gemma3", "gemma3_text"})  # whose stated length has the factor in it
_NO_LIMIT = 10**9  # tokenizers state "no limit" as a number above this


def error_of(inv_freq: Tensor, here: Tensor, there: Tensor, shift: int) -> float:
    """Return the mean relative error of keys [Hkv, T, D] that are moved by ``shift`` positions.

    ``there``: the exact keys. The error of each rotated pair is relative to the pair's own length,
    because a few elements of trained keys are so large that they would hide all others.
    """
    by = torch.full((here.shape[-2],), shift, device=here.device)
    moved = rotate(here[None], by, inv_freq.to(here.device))[0].float()
    there, half = there.float(), len(inv_freq)
    error, turned = moved - there, slice(2 * half)
    lengths = [torch.hypot(*each[..., turned].split(half, -1)) for each in (error, there)]
    rest = error[..., 2 * half :].norm() / there.norm().clamp_min(1e-12)
    return float((lengths[0] / lengths[1].clamp_min(1e-12)).mean() + rest)


def rope_parameters(config: Any) -> dict[str, Any]:
    """Return the RoPE settings, stored under ``rope_parameters`` or ``rope_scaling``.

    If the settings are nested by layer type, return the settings of layers with full attention.
    """
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    nested = {key: value for key, value in (settings or {}).items() if isinstance(value, dict)}
    if not nested:
        return dict(settings or {})
    return dict(nested.get("full_attention") or next(iter(nested.values())))


def rope_kind(config: Any) -> str:
    """Return the kind of RoPE by its name in configs, such as ``default`` or ``yarn``."""
    settings = rope_parameters(config)
    return str(settings.get("rope_type") or settings.get("type") or "default")


def check_rope(config: Any, label: str, *, moves_keys: bool) -> None:
    """Refuse RoPE frequencies that change with the length of the input.

    ``moves_keys``: the model is a draft, whose cached keys are moved to other positions. longrope
    has one set of frequencies for short inputs and another for long ones, so the keys of a prompt's
    first and last chunks would not fit each other. Raises ModelError.
    """
    kind = rope_kind(config)
    if moves_keys and kind not in FIXED:
        raise ModelError(
            f"{label} has {kind} RoPE, but retrieval needs a RoPE type with fixed frequencies; "
            f"choose a draft with one of these: {', '.join(sorted(FIXED))}."
        )
    if kind == "longrope":
        raise ModelError(
            f"{label} has longrope RoPE, whose frequencies change with the length of the input; "
            "specx reads documents in chunks and cannot use it, so choose another model."
        )


def window(config: Any, tokenizer_limit: int | None = None) -> int:
    """Return the longest input in tokens that the config states.

    ``max_position_embeddings`` is the length before scaling for linear and yarn, whose factor
    extends it, and the length after scaling for all others. A dynamic model is limited to the
    length before scaling, because its frequencies would change from step to step beyond that
    length. Configs disagree on whether the number includes the factor (Gemma 3's does), so a
    tokenizer limit between the two decides.

    Raises ModelError if the config states no length.
    """
    stated = getattr(config, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated < 1:
        raise ModelError(
            f"The config.json of the {config.model_type} model states no max_position_embeddings, "
            "the maximum length of its input; choose another model."
        )
    settings = rope_parameters(config)
    if rope_kind(config) not in LENGTHENED or config.model_type in _INCLUDED:
        return stated
    original = settings.get("original_max_position_embeddings") or stated
    longest = max(stated, round(original * float(settings.get("factor") or 1.0)))
    limits = (getattr(config, "max_sequence_length", None), tokenizer_limit)
    between = [n for n in limits if n is not None and n < _NO_LIMIT and stated <= n <= longest]
    return min([longest, *between])


def rope_of(model: Any) -> RopeSpec | None:
    """Return a transformers model's RoPE; None unless there is exactly one.

    Element i of R rotated elements, the first of a head, rotates with element i + R/2.
    """
    found = [module.inv_freq for module in model.modules() if hasattr(module, "inv_freq")]
    if not found or any(not torch.equal(each, found[0]) for each in found):
        return None
    return RopeSpec(inv_freq=found[0].detach().to("cpu", torch.float32).clone())


def model_facts(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Read the properties of a ``LoadedModel`` from a transformers model.

    Raises ModelError if it states no window.
    """
    config = model.config
    heads, stated = config.num_attention_heads, (model.generation_config, config, tokenizer)
    ends = (getattr(each, "eos_token_id", None) for each in stated)
    rows, hidden = model.get_output_embeddings().weight.shape[0], config.hidden_size
    dim = getattr(config, "head_dim", None) or hidden // heads
    attention = AttentionSpec(
        query_heads=heads, kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=dim, scaling=dim**-0.5, rope=rope_of(model),
    )  # fmt: skip
    mlp = MlpSpec(inner=getattr(config, "intermediate_size", None) or 4 * hidden)
    layer = LayerSpec(attention=attention, mlp=mlp, input_norm=None, output_norm=None)
    return {
        "decoder_spec": DecoderSpec(
            vocabulary=rows, hidden=hidden, layers=(layer,) * config.num_hidden_layers, norm=None
        ),
        "vocab_size": rows,
        "window": window(config, getattr(tokenizer, "model_max_length", None)),
        "eos_token_ids": eos_token_ids(ends, rows),
    }


def eos_token_ids(stated: Iterable[Any], rows: int) -> frozenset[int]:
    """Merge the end-of-text ids of several sources: an id, a list of ids, or None each.

    ``rows``: the number of the model's ids; ids outside of it are dropped.
    """
    found: set[int] = set()
    for ids in stated:
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(i for i in found if 0 <= i < rows)  # some configs state -1 for "none"
