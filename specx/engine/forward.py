"""One forward pass of a transformers model through specx's attention and cache."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from specx.engine.kv_cache import CacheGroup, CacheShape, PreallocatedCache
from specx.errors import is_out_of_memory
from specx.kernels.spec import DecoderSpec
from specx.kernels.trees import MAX_ROWS
from specx.models.call import AttentionCall, PrefillCall, TreeCall
from specx.models.compiled import around_forward
from specx.models.decoder import Decoder
from specx.models.fused_layers import fused_model_of
from specx.models.head_decoder import HeadDecoder
from specx.models.load import LoadedModel

PREFILL_CHUNK = {"cpu": 1024, "cuda": 4096}  # tokens: bounds the memory of activations
SMALLEST_CHUNK = 256  # tokens; with fewer, weights take up far more memory than activations


def rows_ahead(device: torch.device) -> int:
    """Return the most rows that a target writes behind its text: of a chunk, or of a tree."""
    return max(PREFILL_CHUNK[device.type], MAX_ROWS)


def cache_shape(model: LoadedModel, *, moves_keys: bool = False) -> CacheShape:
    """Return the shape of a cache for the model.

    ``moves_keys``: layers of one group also turn alike, so that their keys move together.
    """
    if model.decoder_spec is not None:
        return _shape_of_spec(model, model.decoder_spec, moves_keys=moves_keys)
    group = CacheGroup(
        layers=model.num_layers, kv_heads=model.num_kv_heads, head_dim=model.head_dim
    )
    return CacheShape.of_one(group, model.dtype, model.device, model.ops)


def _shape_of_spec(model: LoadedModel, spec: DecoderSpec, *, moves_keys: bool) -> CacheShape:
    groups, places = groups_of(spec, model.window, moves_keys=moves_keys)
    return CacheShape(
        groups=groups, places=places, dtype=model.dtype, device=model.device, ops=model.ops
    )


def groups_of(
    spec: DecoderSpec, longest: int, *, moves_keys: bool = False
) -> tuple[tuple[CacheGroup, ...], tuple[tuple[int, int], ...]]:
    """Return the groups of a decoder's cache, and the places of its layers (``CacheShape``).

    ``longest``: tokens of a text; layers with a window as long see everything.
    """
    members: dict[tuple[object, ...], list[int]] = {}
    windows = [layer.attention.window for layer in spec.layers]
    windows = [None if window is None or window >= longest else window for window in windows]
    for index, layer in enumerate(spec.layers):
        attention = layer.attention
        if attention.shared is None:
            kind = attention.kv_heads, attention.head_dim, windows[index]
            turns = id(attention.rope) if moves_keys else None
            members.setdefault((*kind, turns), []).append(index)
    places = {
        layer: (group, number)
        for group, layers in enumerate(members.values())
        for number, layer in enumerate(layers)
    }
    for index, layer in enumerate(spec.layers):
        if layer.attention.shared is not None:
            places[index] = places[layer.attention.shared]
    groups = []
    for layers in members.values():
        attention = spec.layers[layers[0]].attention
        groups.append(
            CacheGroup(
                layers=len(layers),
                kv_heads=attention.kv_heads,
                head_dim=attention.head_dim,
                window=windows[layers[0]],
                rope=attention.rope,
            )
        )
    return tuple(groups), tuple(places[index] for index in range(len(spec.layers)))


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
    if isinstance(model.model, Decoder):
        assert isinstance(call, PrefillCall | TreeCall)
        return model.model.run(tokens, positions, call, logits_of)
    fused = fused_model_of(model.model)
    if fused is not None and fused.serves(call):
        return fused.run(tokens, positions, call, logits_of)
    # transformers hands it through to the attention function, and to the forward of fused layers.
    extra: dict[str, Any] = {"specx_call": call}
    eager = _runs_eagerly(model, tokens.shape[0], call)
    with around_forward(model, cache.storage, eager=eager):
        output = model.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            past_key_values=_as_transformers(cache),
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
    wanted: Tensor | int | None = 0,
    parents: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a head; return the states [wanted, H] of what follows rows, and logits [wanted, V].

    ``rows``: tokens int64 [T], states [T, H] beside them, positions int64 [T]. ``wanted``: the rows
    (int64), or how many of the last; 0: all, None: none, but their keys and values. ``parents``
    int64 [T]: places of the states, which may be others in number. Logits are in the head's own
    ids; otherwise as in ``forward``.
    """
    if isinstance(model.model, HeadDecoder):
        assert isinstance(call, PrefillCall | TreeCall)
        return model.model.run(rows, call, wanted, parents)
    tokens, states, positions = rows
    out, logits = model.model(
        tokens[None], states[None], positions[None], wanted, parents,
        past_key_values=_as_transformers(cache), use_cache=True, specx_call=call,
    )  # fmt: skip
    return out[0], logits[0]


def in_chunks(
    read: Callable[[int, int], Tensor], start: int, end: int, device: torch.device
) -> Iterator[tuple[int, Tensor]]:
    """Read the tokens from ``start`` to ``end`` of a prompt in chunks; yield each end and logits.

    ``read`` gets begin and end of a chunk. Where the memory does not suffice for one, it and those
    behind it are read in smaller chunks. Raises what ``read`` raises.
    """
    chunk = PREFILL_CHUNK[device.type]
    while start < end:
        stop = min(start + chunk, end)
        try:
            logits = read(start, stop)
        except Exception as error:
            if not is_out_of_memory(error) or chunk // 4 < SMALLEST_CHUNK:
                raise
            logits = None
        if logits is None:  # by now the error has let go of what was computed so far
            chunk //= 4
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        yield stop, logits
        start = stop


def _as_transformers(cache: PreallocatedCache) -> Any:
    """Return what transformers' models take for a cache, the same one each time."""
    from specx.models.seam_cache import SeamCache

    if cache.seam is None:
        cache.seam = SeamCache(len(cache.places), cache.length, cache.capacity)
    return cache.seam


def _runs_eagerly(model: LoadedModel, tokens: int, call: AttentionCall) -> bool:
    """Return True for passes of a prefill that are not worth compiling for.

    The end of a text comes in too many lengths; a draft that prefills in a window gains less in a
    hundred documents than compiling takes.
    """
    if not isinstance(call, PrefillCall):
        return False
    return tokens != PREFILL_CHUNK[model.device.type] or call.window is not None
