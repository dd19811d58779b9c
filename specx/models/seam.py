"""The seam with transformers, tried out on the loaded model before anything relies on it.

A forward pass over two tokens with an attention function of our own shows whether every layer
calls the attention interface, whether extra keyword arguments arrive there, and what shape keys
and values have. A model that keeps its attention to itself is refused here, not miscomputed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface

from specx.errors import ModelError
from specx.kernels.torch.cache import rotate
from specx.models.architecture import check_window
from specx.models.config_file import SUPPORTED
from specx.models.facts import ModelFacts
from specx.models.reason import reason
from specx.models.rope import RopeFacts

_NAME = "specx_probe"
_SHIFT = 13  # positions; far enough to turn every frequency that matters
_TOLERANCE = 0.05  # relative, mean over pairs; bfloat16 costs 0.005, a wrong rotation above 0.3
_UNDERSTOOD = frozenset(  # keyword arguments that do not change what attention computes
    {"scaling", "dropout", "sliding_window", "position_ids", "is_causal", "specx_call"}
    | {"use_cache", "cache_position", "position_embeddings", "output_attentions"}
    | {"output_hidden_states", "output_router_logits", "return_dict"}
)


@dataclass(frozen=True)
class LayerCall:
    """One layer's call of the attention function.

    ``query``: [B, Hq, T, D]; ``key``, ``value``: [B, Hkv, T, D]; ``extras`` are the keyword
    arguments other than ours.
    """

    layer: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    has_mask: bool
    extras: dict[str, Any]


@dataclass
class Probe:
    """Travels through the model as ``specx_call`` and collects the layers' calls."""

    calls: list[LayerCall] = field(default_factory=list)


class _CallLostError(Exception):
    """The attention function was called without our extra keyword argument."""


def check_seam(model: Any, facts: ModelFacts, label: str, positions: int) -> tuple[float, ...]:
    """Try the seam on two tokens; return the factor of each layer's scores.

    Raises ModelError when a layer does not reach the attention interface, when extra keyword
    arguments do not, or when attention needs what specx does not compute.
    """
    calls = _probe(model, facts, label, first_position=0)
    reached = [call.layer for call in calls]
    if reached != list(range(facts.num_layers)):
        raise ModelError(
            f"{label} ({type(model).__name__}) calls the attention interface of transformers in "
            f"{len(set(reached))} of {facts.num_layers} layers, so specx cannot compute its "
            f"attention; {SUPPORTED}."
        )
    for call in calls:
        _check_call(call, facts, label, positions)
    return tuple(float(call.extras["scaling"]) for call in calls)


def check_rotation(model: Any, facts: ModelFacts, label: str) -> None:
    """See that rotating every layer's keys gives the keys of other positions.

    Retrieval moves cached keys with ``kernels.torch.cache.rotate``, which is exact only when
    RoPE is laid out as :class:`~specx.models.rope.RopeFacts` says. The probe's attention ignores
    positions, so the keys of all layers depend on them through RoPE alone. Raises ModelError.
    """
    near = _probe(model, facts, label, first_position=0)
    far = _probe(model, facts, label, first_position=_SHIFT)
    for here, there in zip(near, far, strict=True):
        if facts.rope is None or _rotation_error(here.key, there.key, facts.rope) > _TOLERANCE:
            raise ModelError(
                f"{label} does not rotate the keys of layer {here.layer} as Llama does, and "
                "retrieval needs that to move them; choose a draft of the Llama, Mistral or Qwen "
                "families."
            )


def _probe(model: Any, facts: ModelFacts, label: str, first_position: int) -> list[LayerCall]:
    probe = Probe()
    # Two ids from the middle: the embeddings of the first and last ids are often padding.
    ids = torch.tensor([[facts.vocab_size // 3, facts.vocab_size // 2]], device=model.device)
    positions = torch.arange(first_position, first_position + 2, device=model.device)[None]
    try:
        with torch.no_grad(), attending(model, _NAME):
            model(input_ids=ids, position_ids=positions, use_cache=False, specx_call=probe)
    except (_CallLostError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, _CallLostError) or "specx_call" in str(error):
            raise ModelError(
                f"{label} ({type(model).__name__}) does not pass extra keyword arguments on to "
                f"its attention, which specx needs; {SUPPORTED}."
            ) from error
        raise ModelError(
            f"{label} ({type(model).__name__}) fails on a trial run of two tokens "
            f"({reason(error)}); choose another model."
        ) from error
    return probe.calls


def _check_call(call: LayerCall, facts: ModelFacts, label: str, positions: int) -> None:
    where = f"{label} has an attention (layer {call.layer})"
    unknown = sorted(k for k, v in call.extras.items() if v is not None and k not in _UNDERSTOOD)
    if unknown:
        raise ModelError(
            f"{where} that needs {_SPOKEN.get(unknown[0], unknown[0])}, which is not supported; "
            f"{SUPPORTED}."
        )
    check_window(call.extras.get("sliding_window"), label, positions)
    if call.has_mask:
        raise ModelError(f"{where} with a mask of its own, which is not supported; {SUPPORTED}.")
    expected = [
        (1, heads, 2, facts.head_dim)
        for heads in (facts.num_heads, facts.num_kv_heads, facts.num_kv_heads)
    ]
    if [tuple(t.shape) for t in (call.query, call.key, call.value)] != expected:
        raise ModelError(
            f"{where} whose heads do not have the shape that its config states, which is not "
            f"supported; {SUPPORTED}."
        )


_SPOKEN = {"s_aux": "attention sinks (s_aux)", "softcap": "logit soft-capping (softcap)"}


@contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """Use another attention function inside the block."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


def _record(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Write down the arguments of an attention in which every token sees only itself."""
    probe = kwargs.pop("specx_call", None)
    if not isinstance(probe, Probe):
        raise _CallLostError
    layer = int(getattr(module, "layer_idx", -1))
    has_mask = attention_mask is not None
    probe.calls.append(LayerCall(layer, query, key, value, has_mask, kwargs))
    groups = query.shape[1] // value.shape[1]
    return value.repeat_interleave(groups, dim=1).transpose(1, 2), None


def _rotation_error(here: torch.Tensor, there: torch.Tensor, rope: RopeFacts) -> float:
    """Return the mean relative error of moving keys [B, Hkv, T, D] by ``_SHIFT`` positions.

    Relative to each rotated pair's own length: a few elements of trained keys are so large that
    they would hide all others.
    """
    by = torch.full((here.shape[-2],), _SHIFT, device=here.device)
    moved = rotate(here, by, rope.inv_freq.to(here.device)).float()
    there, half = there.float(), rope.inv_freq.shape[0]
    error = moved - there
    pairs = _pair_lengths(error, half) / _pair_lengths(there, half).clamp_min(1e-12)
    rest = error[..., 2 * half :].norm() / there.norm().clamp_min(1e-12)
    return float(pairs.mean() + rest)


def _pair_lengths(keys: torch.Tensor, half: int) -> torch.Tensor:
    """Return the length of every pair that is rotated together: [..., D] -> [..., half]."""
    return torch.hypot(keys[..., :half], keys[..., half : 2 * half])


AttentionInterface.register(_NAME, _record)
