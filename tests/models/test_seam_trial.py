"""Modules of transformers in pieces: who is refused because the pieces do not fit together."""

from typing import Any

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel

from specx.errors import ModelError
from specx.models.seam import in_memory
from specx.models.seam_trial import check_pieces
from tests.tiny import VOCAB, make_model, make_tokenizer


def check(model: Any) -> None:
    loaded = in_memory(model.eval(), make_tokenizer(), "tiny")
    check_pieces(loaded, "The model")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "smollm3"])
def test_causal_models_pass(family: str, dtype: torch.dtype) -> None:
    model = make_model(family)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    check(model)
    assert model.config._attn_implementation == "specx"


def test_tokens_that_see_those_behind_them() -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = BertLMHeadModel(BertConfig(vocab_size=VOCAB, intermediate_size=64, **shape))
    for weight in model.parameters():
        weight.data *= 8  # else all logits are alike
    with pytest.raises(ModelError, match=r"tokens attend to later ones, or it ignores posit"):
        check(model)


def test_positions_that_are_ignored() -> None:
    model = make_model()
    own = model.model.forward

    def forward(*args: Any, position_ids: Any = None, **more: Any) -> Any:
        if position_ids is not None:
            past, rows = more["past_key_values"].get_seq_length(), position_ids.shape[1]
            position_ids = torch.arange(past, past + rows)[None]
        return own(*args, position_ids=position_ids, **more)

    model.model.forward = forward
    with pytest.raises(ModelError, match="computes different logits in chunks than at once"):
        check(model)


def test_a_model_that_cannot_be_run_in_pieces() -> None:
    model = make_model()

    def forward(*_: Any, **__: Any) -> Any:
        raise IndexError("no such position")

    model.model.forward = forward
    with pytest.raises(ModelError, match=r"fails a trial run in chunks \(no such position\)"):
        check(model)
