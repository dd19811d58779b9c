"""Passes of few rows through a whole model at once, where the backend has them."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specx.kernels.layers import DecoderWeights, FewRows, LayerWeights, LinearMap, WholePass
from specx.kernels.ops import Ops
from specx.kernels.spec import DecoderSpec, NormSpec
from specx.models.call import PrefillCall, TreeCall
from specx.models.memory import free_bytes

COPIES = 0.25  # of the memory that is free at the first pass


def whole_pass_of(model: Any, weights: Sequence[LayerWeights], ops: Ops) -> WholePass | None:
    """Prepare passes of a model whose layers are fused. ``weights``: those of the layers."""
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    vocabulary, hidden = head.weight.shape
    spec = DecoderSpec(
        vocabulary=vocabulary,
        hidden=hidden,
        layers=tuple(each.spec for each in weights),
        norm=NormSpec(eps=decoder.norm.variance_epsilon),
        tied=head.weight is decoder.embed_tokens.weight,
    )
    return ops.whole_pass(
        DecoderWeights(
            spec=spec,
            embedding=decoder.embed_tokens.weight,
            layers=weights,
            norm=decoder.norm.weight,
            head=LinearMap(head.weight, head.bias),
            spare=partial(_spare, head.weight.device),
        )
    )


def _spare(device: torch.device) -> float:
    free = free_bytes(device)
    return math.inf if free is None else COPIES * free


def run_at_once(
    whole: WholePass | None,
    ids: Tensor,
    positions: Tensor,
    call: PrefillCall | TreeCall,
    wanted: Tensor | int,
) -> Tensor | None:
    """Compute logits [rows, V] of tokens int64 [T] at positions int64 [T], all layers at once.

    ``wanted``: the rows that have logits, or how many of the last; 0 means all. Returns None for a
    pass that layers have to compute one by one.
    """
    if whole is None or not isinstance(call, TreeCall) or call.features is not None:
        return None
    if not whole.serves(ids.shape[0]):
        return None
    mapping = call.mapping
    few = FewRows(
        tokens=ids,
        positions=positions,
        storage=mapping.storage,
        rows=mapping.slots,
        prefix=call.prefix,
        mask=call.mask,
        wanted=wanted,
        kept=tuple(kept.layer for kept in call.kept),
    )
    logits, found = whole(few)
    for kept, queries_and_lse in zip(call.kept, found, strict=True):
        kept.note(*queries_and_lse)
    return logits
