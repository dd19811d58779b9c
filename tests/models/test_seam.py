"""The seam with transformers: what passes the trial run, and what is refused by it."""

from typing import Any

import pytest
import torch
import transformers

from specx.errors import ModelError
from specx.models.loaded import LoadedModel
from specx.models.seam import in_memory
from specx.models.seam_trial import check_rotation, run_apart
from tests.tiny import make_model, make_tokenizer

SHAPE: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def _try_out(model: Any, draft: bool = False) -> None:
    loaded = _loaded(model)
    assert len(run_apart(loaded, "The model", positions=256)[0]) == loaded.num_layers
    if draft:
        check_rotation(loaded, "The model", positions=256)


def _loaded(model: Any) -> LoadedModel:
    return in_memory(model.eval(), make_tokenizer(), "tiny")


def _model(name: str, **overrides: Any) -> Any:
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **overrides})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_supported_families_pass(family: str, dtype: torch.dtype) -> None:
    for parameter in (model := make_model(family)).parameters():
        parameter.data = parameter.data.to(dtype)
    _try_out(model, draft=True)


@pytest.mark.parametrize("name", ["Mixtral", "Phi3", "Olmo2", "Granite"])
def test_other_plain_decoders_pass(name: str) -> None:
    _try_out(_model(name, sliding_window=None), draft=True)


def test_partial_rotation_is_a_fact() -> None:
    model = _model("Phi", partial_rotary_factor=0.5)
    loaded = _loaded(model)
    check_rotation(loaded, "The model", positions=256)
    (rope,) = loaded.decoder_spec.ropes
    assert (len(rope.inv_freq), loaded.attention_of(0).head_dim) == (4, 16)


def test_attention_outside_the_interface() -> None:
    with pytest.raises(ModelError, match="the attention interface of transformers in 0 of 4"):
        _try_out(_model("Bloom"))


def test_a_model_that_fails_before_its_layers() -> None:
    model = make_model()

    def forward(*_: Any, **__: Any) -> Any:
        raise ValueError("no such input. More follows")

    model.model.forward = forward
    expected = r"\(LlamaForCausalLM\) fails on a trial run of two tokens before any layer calls "
    with pytest.raises(ModelError, match=expected + r".*interface \(no such input\); choose"):
        _try_out(model)


def test_extra_keywords_that_do_not_arrive() -> None:
    with pytest.raises(ModelError, match="does not pass extra keyword arguments on"):
        _try_out(_model("StableLm"))


@pytest.mark.parametrize(("argument", "spoken"), [("s_aux", "sinks"), ("softcap", "soft-capping")])
def test_attention_with_additions(argument: str, spoken: str) -> None:
    model = make_model()
    layer = model.model.layers[1].self_attn
    plain = layer.forward
    layer.forward = lambda *args, **kwargs: plain(*args, **kwargs, **{argument: 30.0})
    with pytest.raises(ModelError, match=rf"\(layer 1\) that needs .*{spoken}"):
        _try_out(model)


def test_soft_capping_model() -> None:
    with pytest.raises(ModelError, match="soft-capping"):
        _try_out(_model("Gemma2", head_dim=16, sliding_window=256))


def test_values_narrower_than_keys() -> None:
    model = _model(
        "DeepseekV3",
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=4,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
    )
    with pytest.raises(ModelError, match="do not have the shape that its config states"):
        _try_out(model)


def test_sliding_window_that_only_attention_knows() -> None:
    with pytest.raises(ModelError, match="sliding-window layers"):
        _try_out(make_model("mistral", sliding_window=64))


@pytest.mark.parametrize(
    ("name", "overrides", "layer"),
    [("Cohere", {}, 0), ("SmolLM3", {}, 3), ("GPT2", {"n_positions": 256}, 0)],
    ids=["interleaved", "one layer without RoPE", "learned positions"],
)
def test_draft_whose_keys_cannot_be_moved(name: str, overrides: dict[str, Any], layer: int) -> None:
    with pytest.raises(
        ModelError, match=f"rotates the keys of layer {layer} differently from Llama"
    ):
        _try_out(_model(name, **overrides), draft=True)
    _try_out(_model(name, **overrides))
