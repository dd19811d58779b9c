"""Attention as standard tree decoding does it: one mask over prefix and new tokens, scores written
out, which keeps flash kernels away.

What hybrid tree attention and flash prefill are measured against. It costs what transformers' own
written-out attention costs, in its precision (matrix products in the model's number format, softmax
in float32), except that keys shared by a group of heads are not repeated: kinder to the baseline.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from specx.kernels.torch.softmax import DENSE_SCORES
from specx.models.call import PrefillCall, TreeCall
from specx.models.load import LoadedModel

Phase = Literal["tree", "prefill"]


@dataclass(kw_only=True)
class MaskedTreeCall(TreeCall):
    """A tree whose rows attend under one mask over the whole storage.

    Where the host does not know how many rows are written (on a GPU), those beyond must be finite:
    a weight of 0 does not silence a NaN.
    """

    def attend_stored(self, layer: int, q: Tensor, scaling: float, **how: Any) -> Tensor:
        assert not how, "one mask for all layers"
        keys, values = self.mapping.storage[layer].unbind()
        visible = self.visible
        keys, values = keys[:, : visible.shape[1]], values[:, : visible.shape[1]]
        if (kept := self.kept_of(layer)) is not None:  # only it needs the sums
            lse = _scores(q, keys, scaling, visible).logsumexp(-1).reshape(q.shape[:2])
            kept.note(q, lse)
        return masked_attention(q, keys, values, scaling, visible)

    @cached_property
    def visible(self) -> Tensor:
        """The rows of the storage that each new token sees, made once for all layers: [T, S]."""
        own, capacity = self.mask.dense, self.mapping.storage[0].shape[2]
        if own.device.type == "cpu":  # where a look at the length costs nothing
            capacity = int(self.prefix) + own.shape[1]
        row = torch.arange(capacity, device=own.device) - self.prefix
        return (row < 0) | (own[:, row.clamp(0, own.shape[1] - 1)] & (row < own.shape[1]))


@dataclass(kw_only=True)
class MaskedPrefillCall(PrefillCall):
    """A chunk of a prompt that attends under one mask.

    What comes behind the chunk is not computed, while reading the prompt at once would compute and
    mask it: kinder to the baseline, too.
    """

    def compute(
        self, q: Tensor, keys: Tensor, values: Tensor, scaling: float,
        *, needs_lse: bool = False,  # noqa: ARG002 - of a prefill nobody needs it
        **how: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        assert not how, "one mask for all layers"
        visible = self.visible
        keys, values = keys[:, : visible.shape[1]], values[:, : visible.shape[1]]
        return masked_attention(q, keys, values, scaling, visible), None

    @cached_property
    def visible(self) -> Tensor:
        """The rows that each new token sees, made once for all layers: bool [T, past + T]."""
        slots = self.mapping.slots
        column = torch.arange(self.past + len(slots), device=slots.device)
        row = column[self.past :, None]
        return (column <= row) & (column > row - (self.window or len(column)))


def masked(model: LoadedModel, phases: Collection[Phase]) -> LoadedModel:
    """Return the model attending under one mask in these phases."""
    calls: dict[str, Any] = {}
    if "tree" in phases:
        calls["tree_call"] = MaskedTreeCall
    if "prefill" in phases:
        calls["prefill_call"] = MaskedPrefillCall
    return replace(model, **calls)


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
