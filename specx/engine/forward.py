"""One forward pass of a transformers model through specx's attention and cache."""

from typing import Any

from torch import Tensor

from specx.engine.kv_cache import CacheShape, PreallocatedCache
from specx.models.call import AttentionCall, PrefillCall
from specx.models.compiled import around_forward
from specx.models.load import LoadedModel

PREFILL_CHUNK = {"cpu": 1024, "cuda": 4096}  # tokens: bounds the memory of activations


def cache_shape(model: LoadedModel) -> CacheShape:
    """Return the shape of a cache for the model."""
    return CacheShape(
        layers=model.num_layers,
        kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=model.dtype,
        device=model.device,
        ops=model.ops,
    )


def forward(
    model: LoadedModel,
    tokens: Tensor,
    positions: Tensor,
    cache: PreallocatedCache,
    call: AttentionCall,
    logits_of: Tensor | int = 0,
) -> Tensor:
    """Run tokens int64 [T] at positions int64 [T]; return logits [rows, V].

    ``logits_of``: the rows (int64) that need logits, or how many of the last rows; 0 means all.
    The new rows are written where the call maps them; the caller commits them.
    """
    # transformers hands it through to the attention function, and to the forward of fused layers.
    extra: dict[str, Any] = {"specx_call": call}
    with around_forward(model, cache.storage, eager=_runs_eagerly(model, len(tokens), call)):
        output = model.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=logits_of,
            **extra,
        )
    logits: Tensor = output.logits[0]
    return logits


def head_forward(
    model: LoadedModel,
    rows: tuple[Tensor, Tensor, Tensor],
    cache: PreallocatedCache,
    call: AttentionCall,
    logits_of: Tensor | int = 0,
) -> tuple[Tensor, Tensor]:
    """Run a head; return the states [T, H] of what follows each row, and logits [rows, V].

    ``rows``: tokens int64 [T], states [T, H] beside them, positions int64 [T]. Logits are in the
    head's own ids; otherwise as in ``forward``.
    """
    tokens, states, positions = rows
    out, logits = model.model(
        tokens[None], states[None], positions[None], logits_of,
        past_key_values=cache, use_cache=True, specx_call=call,
    )  # fmt: skip
    return out[0], logits[0]


def _runs_eagerly(model: LoadedModel, tokens: int, call: AttentionCall) -> bool:
    """Return True for passes of a prefill that are not worth compiling for.

    The end of a text comes in too many lengths; a draft that prefills in a window gains less in a
    hundred documents than compiling takes.
    """
    if not isinstance(call, PrefillCall):
        return False
    return tokens != PREFILL_CHUNK[model.device.type] or call.window is not None
