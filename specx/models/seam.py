"""The seam with transformers, for models that only it can run: its attention and its cache.

One extra keyword argument, ``specx_call``, tells the attention function what the pass is.
"""

from types import SimpleNamespace
from typing import Any

from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from specx.models.call import AttentionCall, TreeCall
from specx.models.decoder import Call
from specx.ops.layers import LinearMap

NAME = "specx"


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # None: this implementation has no mask function
    *,
    scaling: float,
    specx_call: AttentionCall,
    **extras: Any,
) -> tuple[Tensor, None]:
    """Store the new keys and values, and attend.

    q [1, Hq, T, D]; k, v [1, Hkv, T, D], new rows, unrepeated -> (out [1, T, Hq, D], None).
    """
    more = {**extras, "attention_mask": attention_mask}
    return specx_call.attend(module.layer_idx, query, key, value, scaling, **more), None


AttentionInterface.register(NAME, attention)


class SeamModel:
    """A model of transformers as the engine runs it: with the interface of a ``Decoder``.

    ``module`` keeps its own classes, and attends through ``attention``.
    """

    computes_at_once, saved_bytes = False, 0

    def __init__(self, module: Any) -> None:
        self.module, self._head = module, module.get_output_embeddings()
        self.embed = module.get_input_embeddings()
        self.weights = SimpleNamespace(
            embedding=self.embed.weight,
            head=LinearMap(self._head.weight, getattr(self._head, "bias", None)),
        )

    def logits(self, x: Tensor) -> Tensor:
        """Return logits [T, V] of what is behind the layers and the norm [T, K]."""
        logits: Tensor = self._head(x[None])[0]
        return logits

    def run(self, ids: Tensor, positions: Tensor, call: Call, kept: Tensor | int = 0) -> Tensor:
        """Compute logits as ``Decoder.run``; transformers may wait for the device."""
        features, past = call.features, call.prefix if isinstance(call, TreeCall) else call.past
        output = self.module(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=SeamCache(past),
            use_cache=True,
            logits_to_keep=kept,
            specx_call=call,
            **({} if features is None else {"output_hidden_states": True}),
        )
        if features is not None:
            *inputs, normed = output.hidden_states
            for layer, hidden in enumerate(inputs):
                features.note_layer(hidden, layer)
            features.note_output(normed)
        logits: Tensor = output.logits[0]
        return logits


class SeamCache(Cache):
    """Stands for a cache whose text has ``length`` rows (int64 [1], or a number).

    transformers only asks for that.
    """

    def __init__(self, length: Tensor | int) -> None:
        super().__init__(layers=[])
        self.length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Return new rows as they came: the attention function stores them (``SlotMapping``)."""
        return key_states, value_states

    def get_seq_length(self, *_: Any) -> int:
        return int(self.length)  # not asked where positions are given

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self, *_: Any) -> int:
        return -1  # none
