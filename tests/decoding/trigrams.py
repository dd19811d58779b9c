"""A model whose next token depends on the last two, read from its cache: exact and fast.

It stands where a decoder stands and sees the same arguments: what it knows of the text
it knows from the cache's rows and from what each row may attend to.
"""

import torch
from torch import Tensor

from specx.models.call import PrefillCall, TreeCall
from specx.models.decoder import rows_of
from specx.models.loaded import LoadedModel
from specx.ops.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, RopeSpec
from specx.ops.torch.backend import TorchOps


class Trigrams:
    """``table`` [V, V, V]: logits after each pair of tokens. Prompts have two tokens or more."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def run(
        self,
        ids: Tensor,
        positions: Tensor,  # noqa: ARG002 - tokens alone decide
        call: PrefillCall | TreeCall,
        kept: Tensor | int = 0,
    ) -> Tensor:
        values = call.mapping.storage[0, 1]
        values.index_copy_(1, call.mapping.slots, ids.float()[None, :, None].expand(1, -1, 2))
        text = values[0, :, 0].long()  # as long as the cache; what is not written is noise
        before = text[self._previous(call, len(ids))]
        return rows_of(self.table[before, ids], kept)

    @staticmethod
    def _previous(call: PrefillCall | TreeCall, rows: int) -> Tensor:
        """For each new row, the row of the text that it sees right before itself."""
        if isinstance(call, PrefillCall):
            return (torch.arange(call.past, call.past + rows) - 1).clamp(min=0)
        others = call.mask.dense.clone()
        own = torch.arange(rows)
        others[own, others.shape[1] - rows + own] = False
        last = (others * (torch.arange(others.shape[1]) + 1)).max(dim=1).values
        return call.prefix + last - 1


_LAYER = LayerSpec(
    attention=AttentionSpec(
        query_heads=1, kv_heads=1, head_dim=2, scaling=1.0, rope=RopeSpec(inv_freq=torch.ones(1))
    ),
    mlp=MlpSpec(inner=2),
    input_norm=None,
    output_norm=None,
)


def trigram_model(table: Tensor) -> LoadedModel:
    return LoadedModel(
        decoder_spec=DecoderSpec(vocabulary=len(table), hidden=2, layers=(_LAYER,), norm=None),
        vocab_size=len(table),
        window=1000,
        eos_token_ids=frozenset(),
        model=Trigrams(table),
        tokenizer=None,
        source="trigrams",
        dtype=torch.float32,
        device=torch.device("cpu"),
        weight_bytes=0,
        ops=TorchOps(),
    )


def random_table(vocabulary: int, seed: int, spread: float = 1.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(vocabulary, vocabulary, vocabulary, generator=generator)
