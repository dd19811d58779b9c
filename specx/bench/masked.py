"""Attention as standard tree decoding does it: one mask over prefix and new tokens, scores written
out, which keeps flash kernels away.

What hybrid tree attention and flash prefill are measured against. It costs what transformers' own
written-out attention costs, in its precision (matrix products in the model's number format, softmax
in float32), except that keys shared by a group of heads are not repeated: kinder to the baseline.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from specx.models.decoder import Decoder
from specx.models.loaded import LoadedModel
from specx.ops.ancestors import AncestorMask
from specx.ops.contract import Ops
from specx.ops.torch.softmax import DENSE_SCORES

Phase = Literal["tree", "prefill"]


class MaskedOps:
    """The operations of a backend, of which attention in some phases is under one mask.

    What comes behind a chunk of a prompt is not computed, while reading the prompt at once would
    compute and mask it: kinder to the baseline, too. Where the host does not know how many rows are
    written (on a GPU), a tree sees storage beyond those, which must be finite: a weight of 0 does
    not silence a NaN.
    """

    def __init__(self, ops: Ops, phases: Collection[Phase]) -> None:
        self.ops, self.phases = ops, frozenset(phases)
        self._tree: tuple[AncestorMask | None, Tensor | None] = None, None  # of the last pass
        self._chunk: tuple[object, Tensor | None] = None, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def whole_pass(self, weights: Any) -> None:
        """Return None: layers attend one by one."""

    def tree_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, mask: AncestorMask,
        scaling: float, *, needs_lse: bool = True, **how: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attend as ``Ops.tree_attention``."""
        if "tree" not in self.phases:
            return self.ops.tree_attention(
                q, keys, values, prefix, mask, scaling, needs_lse=needs_lse, **how
            )
        assert not how, "one mask for all layers"
        if self._tree[0] is not mask:  # a pass makes one, for all layers
            self._tree, self._chunk = (mask, tree_rows(prefix, mask, keys.shape[1])), (None, None)
        visible = self._tree[1]
        assert visible is not None
        keys, values = keys[:, : visible.shape[1]], values[:, : visible.shape[1]]
        lse = None
        if needs_lse:
            lse = _scores(q, keys, scaling, visible).logsumexp(-1).reshape(q.shape[:2])
        return masked_attention(q, keys, values, scaling, visible), lse

    def prefill_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, past: int, window: int | None,
        scaling: float, **how: Any,
    ) -> Tensor:  # fmt: skip
        """Attend as ``Ops.prefill_attention``."""
        if "prefill" not in self.phases:
            return self.ops.prefill_attention(q, keys, values, past, window, scaling, **how)
        assert not how, "one mask for all layers"
        which = past, q.shape[1], window, q.device
        if self._chunk[0] != which:
            self._chunk = which, chunk_rows(past, q.shape[1], window, q.device)
        visible = self._chunk[1]
        assert visible is not None
        keys, values = keys[:, : visible.shape[1]], values[:, : visible.shape[1]]
        return masked_attention(q, keys, values, scaling, visible)


def tree_rows(prefix: Tensor, mask: AncestorMask, capacity: int) -> Tensor:
    """Return the rows of a storage that each row of a tree sees: bool [T, S]."""
    own = mask.dense
    if own.device.type == "cpu":  # where a look at the length costs nothing
        capacity = int(prefix) + own.shape[1]
    row = torch.arange(capacity, device=own.device) - prefix
    return (row < 0) | (own[:, row.clamp(0, own.shape[1] - 1)] & (row < own.shape[1]))


def chunk_rows(past: int, rows: int, window: int | None, device: torch.device) -> Tensor:
    """Return the rows that each of so many tokens behind ``past`` sees: bool [T, past + T]."""
    column = torch.arange(past + rows, device=device)
    row = column[past:, None]
    return (column <= row) & (column > row - (window or len(column)))


def masked(model: LoadedModel, phases: Collection[Phase]) -> LoadedModel:
    """Return the model attending under one mask in these phases."""
    if not phases:
        return model
    ops: Any = MaskedOps(model.ops, phases)
    own = model.model
    return replace(model, ops=ops, model=Decoder(own.weights, ops) if model.is_ours else own)


def masked_attention(
    q: Tensor, keys: Tensor, values: Tensor, scaling: float, visible: Tensor
) -> Tensor:
    """Attend: q [Hq, T, D]; keys, values [Hkv, S, D]; visible bool [T, S] -> out [T, Hq, D]."""
    rows = max(1, DENSE_SCORES // (len(q) * len(visible[0])))  # at once, to bound memory
    outs = []
    for start in range(0, q.shape[1], rows):
        block = q[:, start : start + rows]
        scores = _scores(block, keys, scaling, visible[start : start + rows])
        outs.append((scores.softmax(-1).to(q.dtype) @ values).reshape(block.shape))
    return torch.cat(outs, dim=1).transpose(0, 1)


def _scores(q: Tensor, keys: Tensor, scaling: float, visible: Tensor) -> Tensor:
    """Return scores [Hkv, G·T, S] in float32 or wider, −inf where a row is not visible."""
    packed = q.reshape(len(keys), -1, q.shape[2])
    scores = packed @ keys.transpose(-1, -2) * scaling
    wide = torch.promote_types(q.dtype, torch.float32)
    group = len(q) // len(keys)
    return scores.to(wide).masked_fill(~visible.repeat(group, 1), -torch.inf)
