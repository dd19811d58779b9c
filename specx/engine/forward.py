"""One forward pass of a transformers model through specx's attention and cache."""

from typing import Any

from torch import Tensor

from specx.engine.kv_cache import CacheShape, PreallocatedCache
from specx.models.call import AttentionCall
from specx.models.compiled import around_forward
from specx.models.load import LoadedModel

PREFILL_CHUNK = {"cpu": 1024, "cuda": 4096}  # tokens: bounds the memory of activations


def cache_shape(model: LoadedModel) -> CacheShape:
    return CacheShape(
        layers=model.num_layers,
        kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=model.dtype,
        device=model.device,
    )


def forward(
    model: LoadedModel,
    tokens: Tensor,
    positions: Tensor,
    cache: PreallocatedCache,
    call: AttentionCall,
    logits_of: Tensor | int = 0,
) -> Tensor:
    """Run tokens int64 [T] at positions int64 [T]; logits [rows, V].

    ``logits_of``: the rows (int64) that need logits, or how many of the last rows; 0 means all.
    The new rows are scratch in the cache, behind those that are, unless the call says where they
    go: the caller commits them.
    """
    call.rows = call.rows or cache.next_rows(len(tokens))
    call.masked = call.phase in model.masked
    extra: dict[str, Any] = {"specx_call": call}
    # The end of a text comes in too many lengths to compile for; a draft that prefills in a window
    # gains less in a hundred documents than compiling takes.
    whole = len(tokens) == PREFILL_CHUNK[model.device.type] and call.window is None
    with around_forward(model, cache.storage, eager=call.phase == "prefill" and not whole):
        output = model.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=logits_of,
            **extra,
        )
    cache.wrote(len(tokens))
    logits: Tensor = output.logits[0]
    return logits
