"""The Triton kernels as the engine calls them, where they can be used."""

import importlib.util
from typing import cast

import torch
from torch import Tensor

from specx.kernels.torch.attention import prefill_attention
from specx.models.call import AttentionCall, Watched, note_queries

IS_AVAILABLE = importlib.util.find_spec("triton") is not None  # it comes with CUDA builds of torch

if IS_AVAILABLE:
    from specx.kernels.triton import store as triton_store
    from specx.kernels.triton import tree_attention as triton_tree


def serves(tensor: Tensor) -> bool:
    """Whether the kernels are the way to go for a tensor: on a GPU, with Triton."""
    return tensor.is_cuda and IS_AVAILABLE


def chunk_scores(
    query: Tensor,
    lse: Tensor,
    keys: Tensor,
    length: Tensor,
    scaling: float,
    chunk: int,
    short: int = 0,
) -> Tensor:
    """As ``scores.chunk_scores``, without the host knowing the length."""
    return triton_tree.chunk_scores(query, lse, keys, length, scaling, chunk, short)


def attention(
    layer: Tensor, query: Tensor, key: Tensor, value: Tensor, scaling: float, call: AttentionCall
) -> Tensor:
    """The attention of a tree in one opaque operator, which torch can compile around.

    layer: int64 [], on the CPU; query [1, Hq, T, D]; key, value [1, Hkv, T, D], new rows.
    Returns [1, T, Hq, D].
    """
    assert call.rows is not None
    assert call.prefix is not None
    assert call.visible is not None
    watched = call.watched
    out = _attend(
        layer,
        query,
        key,
        value,
        call.rows.storage,
        call.rows.places,
        call.prefix,
        call.visible,
        scaling,
        -1 if watched is None else watched.layer,
        None if watched is None else watched.queries,
        None if watched is None else watched.lse,
    )
    return cast(Tensor, out)


def prefill(
    layer: Tensor, query: Tensor, key: Tensor, value: Tensor, scaling: float, call: AttentionCall
) -> Tensor:
    """The same for the attention of a prefill."""
    assert call.rows is not None
    watched = call.watched
    out = _prefill(
        layer,
        query,
        key,
        value,
        call.rows.storage,
        call.rows.places,
        call.start,
        call.window,
        scaling,
        -1 if watched is None else watched.layer,
        None if watched is None else watched.queries,
    )
    return cast(Tensor, out)


@torch.library.custom_op("specx::tree_attention", mutates_args=["storage", "queries", "lse"])
def _attend(
    layer: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    storage: Tensor,
    places: Tensor,
    prefix: Tensor,
    visible: Tensor,
    scaling: float,
    watched: int,
    queries: Tensor | None,
    lse: Tensor | None,
) -> Tensor:
    number = int(layer)
    keys, values = storage[number]
    triton_store.put(keys, values, places, key[0], value[0])
    out, sums = triton_tree.tree_attention(query[0], keys, values, prefix, visible, scaling)
    if number == watched and queries is not None and lse is not None:
        Watched(number, queries, lse).note(query[0], sums)
    return out[None]


@_attend.register_fake
def _(layer: Tensor, query: Tensor, *others: object) -> Tensor:  # noqa: ARG001
    return query.new_empty(query.transpose(1, 2).shape)


@torch.library.custom_op("specx::prefill_attention", mutates_args=["storage", "queries"])
def _prefill(
    layer: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    storage: Tensor,
    places: Tensor,
    start: Tensor,
    window: int | None,
    scaling: float,
    watched: int,
    queries: Tensor | None,
) -> Tensor:
    number = int(layer)
    keys, values = storage[number]
    triton_store.put(keys, values, places, key[0], value[0])
    call = AttentionCall("prefill", int(start), window=window)
    out = prefill_attention(query, keys[None], values[None], scaling, call)
    if number == watched and queries is not None:
        note_queries(queries, query[0])
    return out.transpose(1, 2).contiguous()


@_prefill.register_fake
def _(layer: Tensor, query: Tensor, *others: object) -> Tensor:  # noqa: ARG001
    return query.new_empty(query.transpose(1, 2).shape)
