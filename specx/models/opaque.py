"""Attention as opaque operators, which torch compiles around: for compiled layers.

Their arguments are tensors and numbers that are the same for all layers, texts and steps, so that a
layer is compiled once for each number of new tokens.
"""

from typing import cast

import torch
from torch import Tensor

from specx.kernels.ancestors import AncestorMask
from specx.kernels.ops import built_in_ops, ops_for
from specx.models.call import (
    AttentionCall,
    KeptQueries,
    PrefillCall,
    SlotMapping,
    TreeCall,
    note_queries,
)


def attend(
    layer: Tensor, query: Tensor, key: Tensor, value: Tensor, scaling: float, call: AttentionCall
) -> Tensor:
    """Compute ``AttentionCall.attend`` in one operator.

    layer: int64 [], on the CPU; query [1, Hq, T, D]; key, value [1, Hkv, T, D] -> [1, T, Hq, D].
    """
    mapping = call.mapping
    rows = (layer, query, key, value, mapping.storage, mapping.slots)
    watched = [kept.layer for kept in call.kept]
    queries = [kept.queries for kept in call.kept]
    if isinstance(call, TreeCall):
        # Those whose sums are wanted come first; a list of tensors has no place for None.
        with_lse = [kept for kept in call.kept if kept.lse is not None]
        without = [kept for kept in call.kept if kept.lse is None]
        watched = [kept.layer for kept in (*with_lse, *without)]
        queries = [kept.queries for kept in (*with_lse, *without)]
        sums = [kept.lse for kept in with_lse if kept.lse is not None]
        out = _tree(*rows, call.prefix, call.mask.sets, scaling, watched, queries, sums)
    else:
        assert isinstance(call, PrefillCall)
        texts = (call.ops.attention_by, call.start, call.window)
        out = _prefill(*rows, *texts, scaling, watched, queries)
    return cast(Tensor, out)


@torch.library.custom_op("specx::tree_attention", mutates_args=["storage", "queries", "lse"])
def _tree(
    layer: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    storage: Tensor,
    slots: Tensor,
    prefix: Tensor,
    visible: Tensor,
    scaling: float,
    watched: list[int],
    queries: list[Tensor],
    lse: list[Tensor],
) -> Tensor:
    kept = map(KeptQueries, watched, queries, [*lse, *[None] * (len(watched) - len(lse))])
    # Of the mask only the sets: its number of rows differs between levels, and the kernels do
    # without it. (Layers are compiled where Triton is, whose kernels attend to
    # trees there, not a package's.)
    call = TreeCall(
        ops=built_in_ops(query.device),
        mapping=SlotMapping(storage, slots),
        kept=tuple(kept),
        prefix=prefix,
        mask=AncestorMask(visible, query.shape[2]),
    )
    return call.attend(int(layer), query, key, value, scaling)


@torch.library.custom_op("specx::prefill_attention", mutates_args=["storage", "queries"])
def _prefill(
    layer: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    storage: Tensor,
    slots: Tensor,
    attention: str,
    start: Tensor,
    window: int | None,
    scaling: float,
    watched: list[int],
    queries: list[Tensor],
) -> Tensor:
    call = PrefillCall(
        ops=ops_for(query.device, attention, query.dtype, query.shape[-1]),
        mapping=SlotMapping(storage, slots),
        past=int(start),
        window=window,
    )
    out = call.attend(int(layer), query, key, value, scaling)
    if int(layer) in watched:
        note_queries(queries[watched.index(int(layer))], query[0])
    return out.contiguous()


@_tree.register_fake
@_prefill.register_fake
def _empty_output(layer: Tensor, query: Tensor, *others: object) -> Tensor:  # noqa: ARG001
    return query.new_empty(query.transpose(1, 2).shape)
