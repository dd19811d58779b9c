"""transformers' own decoding writes what ours writes, and leaves the models as they were."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, GemmaConfig

from specx.bench.methods.stock import Clock, stock, stock_model
from specx.errors import DocumentError, UsageError
from specx.models.generation_file import GenerationConfig
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.profile import GenerationSettings
from tests.bench.settings import LIKE_IT, SURE, run_method, tiny_case, tiny_setting
from tests.decoding.pairs import allowed, loaded, pair_of
from tests.pairwise import every_other, pairwise
from tests.tiny import VOCAB, make_tokenizer

STOCK = ["hf-generate", "hf-assisted", "prompt-lookup"]


@pytest.mark.parametrize(("name", "prompt", "family"), pairwise(STOCK, [1, 70], ["llama", "qwen3"]))
def test_the_output_is_that_of_plain_decoding(name, prompt, family):
    setting, case = tiny_setting(family, max_new_tokens=40), tiny_case(prompt)
    run = run_method(name, setting, case)
    assert run.output == run_method("plain", setting, case).output
    assert run.method == name
    assert 0 < run.decode_s < 60
    assert run.prefill_s["target_prefill"] > 0
    assert len(run.output) - run.prefilled == pytest.approx(run.steps * run.acceptance_length)
    assert (run.acceptance_length > 1) == (run.steps < len(run.output) - 1)


def test_a_draft_that_is_right_saves_steps():
    setting = tiny_setting(max_new_tokens=40)
    pair = replace(setting.pair, draft=loaded(**SURE))
    run = run_method("hf-assisted", replace(setting, pair=pair), tiny_case(70))
    assert run.acceptance_length > 5


@pytest.mark.parametrize("name", STOCK)
def test_it_ends_where_the_text_ends(name):
    setting, case = tiny_setting(max_new_tokens=40), tiny_case(70)
    whole = run_method("plain", setting, case).output
    ends = frozenset({whole[10]})
    assert whole.index(whole[10]) == 10
    target = replace(setting.pair.target, eos_token_ids=ends)
    setting = replace(setting, pair=replace(setting.pair, target=target))
    assert run_method("plain", setting, case).output == whole[:11]
    assert run_method(name, setting, case).output == whole[:11]


@pytest.mark.parametrize(("name", "temperature"), every_other(STOCK, [0.0, 1.0]))
def test_ids_outside_the_tokenizer_are_never_written(name, temperature):
    models = []
    for settings in (SURE, LIKE_IT):
        model = loaded.__wrapped__(**settings, vocab_size=VOCAB + 16)
        with torch.no_grad():
            rows = model.model.weights.head.weight
            rows[VOCAB:] = -8 * rows[:16]
            rows[VOCAB + 8 :] *= -1
        models.append(model)
    setting = tiny_setting(max_new_tokens=30, temperature=temperature)
    setting = replace(setting, pair=pair_of(*models))
    assert max(run_method(name, setting, tiny_case(30)).output) < VOCAB
    everything = allowed(models[0], range(VOCAB + 16))
    pair = replace(setting.pair, target_allowed=everything, draft_allowed=everything)
    free = run_method(name, replace(setting, pair=pair), tiny_case(30))
    assert max(free.output) >= VOCAB  # they would win


def test_sampling_is_that_of_the_profile():
    def outputs(**generation):
        setting = tiny_setting(max_new_tokens=30, **generation)
        return [run_method("hf-generate", setting, tiny_case(30)).output for _ in range(2)]

    first, second = outputs(temperature=2.0, seed=1)
    assert first == second
    assert outputs(temperature=2.0, seed=2)[0] != first
    assert outputs(temperature=2.0, top_k=1)[0] == outputs()[0]
    assert outputs(temperature=2.0, top_p=1e-6)[0] == outputs()[0]


def test_models_are_left_as_they_were():
    setting, case = tiny_setting(max_new_tokens=5), tiny_case(30)
    before = run_method("specextend", setting, case)
    models = [stock_model(each) for each in (setting.pair.target, setting.pair.draft)]
    attention = [model.config._attn_implementation for model in models]
    settings = [model.generation_config for model in models]
    run_method("hf-assisted", setting, case)
    assert [model.config._attn_implementation for model in models] == attention
    assert all(
        model.generation_config is kept for model, kept in zip(models, settings, strict=True)
    )
    assert run_method("specextend", setting, case).output == before.output


def test_they_are_restored_after_an_error():
    target = loaded.__wrapped__(**SURE, modules=True)

    def fail() -> None:
        with stock(target) as model:
            assert model.config._attn_implementation == "sdpa"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.model.module.config._attn_implementation == "specx"


def test_settings_of_a_checkpoint_do_not_change_what_is_compared():
    setting, case = tiny_setting(max_new_tokens=30), tiny_case(30)
    model = loaded.__wrapped__(**SURE)
    stock_model(model).generation_config.repetition_penalty = 5.0
    changed = replace(setting, pair=replace(setting.pair, target=model))
    assert run_method("hf-generate", changed, case).output == (
        run_method("hf-generate", setting, case).output
    )


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_transformers_computes_with_the_decoders_weights(family):
    target = loaded(family, **SURE)
    weights, module = target.model.weights, stock_model(target)
    assert stock_model(target) is module
    layer, own = weights.layers[1], module.get_decoder().layers[1]
    assert own.self_attn.q_proj.weight.data_ptr() == layer.qkv.weight.data_ptr()
    assert own.mlp.down_proj.weight.data_ptr() == layer.down.weight.data_ptr()
    expected = loaded(family, **SURE, modules=True).model.module
    ids = torch.tensor([tiny_case(20).ids])
    with torch.no_grad(), stock(target) as model:
        expected.set_attn_implementation("sdpa")
        torch.testing.assert_close(model(ids).logits, expected(ids).logits)
        expected.set_attn_implementation("specx")


def test_weights_that_were_changed_are_loaded_again(tmp_path):
    """Gemma's norms have an offset, which ours have in their weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
    config = GemmaConfig(vocab_size=VOCAB, num_attention_heads=2, num_key_value_heads=1, **sizes)
    whole = AutoModelForCausalLM.from_config(config).eval()
    whole.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    target = load_model(ModelSpec(str(tmp_path)), "cpu", "target")
    assert target.runs_natively
    ids = torch.tensor([tiny_case(20).ids])
    with torch.no_grad(), stock(target) as model:
        torch.testing.assert_close(model(ids).logits, whole(ids).logits)


def test_a_prompt_that_fills_the_window_is_refused():
    setting = tiny_setting(window=30)
    with pytest.raises(DocumentError, match="the prompt has 30 tokens, but the window holds 30"):
        run_method("hf-generate", setting, tiny_case(30))
    assert len(run_method("hf-generate", setting, tiny_case(28)).output) == 2


def test_vocabularies_of_different_sizes_are_refused():
    setting = tiny_setting()
    draft = loaded(**LIKE_IT, vocab_size=VOCAB + 16)
    pair = replace(setting.pair, draft=draft, draft_allowed=allowed(draft))
    with pytest.raises(UsageError, match="has 400 rows instead of 384"):
        run_method("hf-assisted", replace(setting, pair=pair), tiny_case(30))


def test_a_clock_tells_prompt_and_steps_apart():
    clock = Clock()
    for tokens in ([[1, 2, 3]], [4], [[5, 6]]):
        clock.put(torch.tensor(tokens))
    clock.end()
    assert clock.tokens == [[4], [5, 6]]
    assert 0 <= clock.seconds[0] <= clock.seconds[1]


PENALTIES = (
    {"repetition_penalty": 1.3},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"no_repeat_ngram": 2, "suppress_tokens": [*range(50)], "begin_suppress_tokens": [60]},
)


@pytest.mark.parametrize(("name", "generation"), every_other(STOCK, PENALTIES))
def test_penalties_are_those_of_the_profile(name, generation):
    setting, case = tiny_setting(max_new_tokens=40, **generation), tiny_case(70)
    ours = run_method("plain", setting, case).output
    assert run_method(name, setting, case).output == ours
    assert run_method("specextend", setting, case).output == ours
    assert ours != run_method("plain", tiny_setting(max_new_tokens=40), case).output


def test_a_models_own_settings_are_those_of_every_method():
    setting, case = tiny_setting(max_new_tokens=40), tiny_case(70)
    stated = GenerationConfig(settings=GenerationSettings(repetition_penalty=1.3))
    target = replace(setting.pair.target, generation_config=stated)
    changed = replace(setting, pair=replace(setting.pair, target=target))
    texts = {run_method(name, changed, case).output for name in ("plain", "tree", "hf-generate")}
    assert len(texts) == 1
    assert texts != {run_method("plain", setting, case).output}
