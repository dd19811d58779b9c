"""Real checkpoints of every family, as target and as draft, through the loader."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from specx.engine.methods import Pair
from specx.models.compat import check_pair
from specx.models.load import ModelSpec, load_model
from tests.engine.pairs import make_profile, make_prompt, run
from tests.tiny import VOCAB, make_checkpoint, make_model, make_tokenizer

FAMILIES = ["llama", "qwen3", "mistral"]
TARGETS = [*FAMILIES, "smollm3"]  # whose keys no draft could move
CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        family: make_checkpoint(tmp_path_factory.mktemp(family), family, seed=3)
        for family in TARGETS
    }


def load(folder, role):
    return load_model(ModelSpec(str(folder)), "cpu", role)


@pytest.mark.parametrize("draft", FAMILIES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_pair_of_families_writes_what_the_target_writes(target, draft, folders):
    models = load(folders[target], "target"), load(folders[draft], "draft")
    facts = check_pair(*models)
    pair = Pair(models[0], facts.target_allowed, models[1], facts.draft_allowed)
    prompt, profile = make_prompt(40), make_profile(cache=CACHE, max_new_tokens=16)
    theirs = make_model(target, seed=3).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=16,
    )
    expected = theirs[0, len(prompt) :].tolist()
    for method in ("plain", "tree", "streaming", "specextend"):
        result = run(pair, profile, method, prompt)
        assert result.tokens == expected
        assert all(step.drafted == (8 if method != "plain" else 0) for step in result.steps)


def test_a_target_whose_layers_have_another_name(tmp_path):
    """GPT-2 decodes plainly, though what is known of layers elsewhere cannot be asked of it."""
    shape = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=1)).eval()
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    loaded = load(tmp_path, "target")
    pair = Pair(loaded, torch.ones(VOCAB, dtype=torch.bool))
    assert not pair.fused_layers
    prompt = make_prompt(40)
    result = run(pair, make_profile(max_new_tokens=16), "plain", prompt)
    ids = torch.tensor([prompt])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16
    )
    assert result.tokens == theirs[0, 40:].tolist()
