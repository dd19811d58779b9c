"""Real checkpoints of every family, as target and as draft, from their files to a text."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
)

from specx.decoding.forward import PREFILL_CHUNK, cache_shape
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.decoding.workspace import cache_bytes, capacity_for
from specx.models.compat import check_pair
from specx.models.decoder import Decoder
from specx.models.load import load_model
from specx.models.loaded import LoadedModel, ModelSpec
from specx.profile import resolve
from specx.records import Method
from tests.decoding.pairs import make_profile, make_prompt, pair_of, run
from tests.models.families import CELLS, SIZES, Cell
from tests.models.families import make_pair as make_oracle
from tests.tiny import VOCAB, make_checkpoint, make_model, make_tokenizer

FAMILIES = ["llama", "qwen3", "mistral"]
TARGETS = [*FAMILIES, "smollm3"]
CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}
LONG = 110  # tokens of prompt and output: more than a window and a tree of 64 rows
USUAL = {  # a cell of each kind of attention, position and layer
    "mistral: a window in all layers",
    "gemma2: low caps",
    "gemma4_text: shared keys and values",
    "cohere2: windows beside no positions",
    "qwen3_5_text: a delta rule",
}
EVERY_CELL = [
    pytest.param(cell, marks=() if str(cell) in USUAL else pytest.mark.slow, id=str(cell))
    for cell in CELLS
]
METHODS: tuple[Method, ...] = ("plain", "tree", "specextend", "lookup", "specextend+lookup")
FEW: tuple[Method, ...] = ("tree", "specextend+lookup")  # in every run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        family: make_checkpoint(tmp_path_factory.mktemp(family), family, seed=3)
        for family in TARGETS
    }


def load(folder, role) -> LoadedModel:
    return load_model(ModelSpec(str(folder)), "cpu", role)


@pytest.mark.every(2)
@pytest.mark.parametrize(("target", "draft"), [*product(TARGETS, FAMILIES), ("qwen3", "smollm3")])
def test_every_pair_of_families_writes_what_the_target_writes(target, draft, folders):
    models = load(folders[target], "target"), load(folders[draft], "draft")
    target_allowed, draft_allowed = check_pair(*models)
    pair = Pair(models[0], target_allowed, models[1], draft_allowed)
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


def write_cell(cell: Cell, folder: Path) -> tuple[Cell, object]:
    """Write the model of a cell with a tokenizer; return it with transformers' model."""
    settings = cell.settings | {"vocab_size": VOCAB}
    if settings.get("rope_parameters", {}).get("rope_type") != "dynamic":
        settings["max_position_embeddings"] = 128
    if "vocab_size_per_layer_input" in settings:
        settings["vocab_size_per_layer_input"] = VOCAB
    made = make_oracle(replace(cell, settings=settings), folder)
    make_tokenizer().save_pretrained(folder)
    return made.cell, made.oracle


@pytest.mark.parametrize("cell", EVERY_CELL)
def test_a_text_of_every_family_is_that_of_transformers(cell, tmp_path, monkeypatch):
    """By all methods, with a draft that is the same model and so is sure to be right at times.

    Layers with a window have rings that the text goes around.
    """
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    _, oracle = write_cell(cell, tmp_path)
    target, draft = load(tmp_path, "target"), load(tmp_path, "target")
    assert isinstance(target.model, Decoder)
    allowed = torch.ones(VOCAB, dtype=torch.bool)
    pair = Pair(target, allowed, draft, allowed)
    whole = min(LONG, target.window)
    prompt = (make_prompt(9) * 12)[: whole - 16]
    ids = torch.tensor([prompt])
    theirs = oracle.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16,
        eos_token_id=sorted(target.eos_token_ids), pad_token_id=0,
    )  # fmt: skip
    expected, accepted = theirs[0, len(prompt) :].tolist(), 0
    for method in FEW if str(cell) in USUAL else METHODS:
        profile = make_profile(cache=CACHE, max_new_tokens=16)
        result = run(pair, profile, method, prompt)
        assert result.tokens == expected, method
        accepted += sum(result.accepted)
    assert accepted > 0 or len(expected) < 3


def mixed(tmp_path: Path) -> LoadedModel:
    """Qwen3 of 6 layers: windows of 24 tokens from layer 2 on, but in layer 4."""
    kinds = ["full_attention"] * 2 + ["sliding_attention"] * 2
    settings = {
        "num_hidden_layers": 6,
        "layer_types": [*kinds, "full_attention", "sliding_attention"],
        "use_sliding_window": True,
        "sliding_window": 24,
    }
    return load(make_checkpoint(tmp_path, "qwen3", **settings), "target")


def test_layers_with_a_window_keep_that_and_choose_no_chunks(tmp_path):
    model = mixed(tmp_path)
    assert model.full_layers == [0, 1, 4]
    shape = cache_shape(model)
    assert [(group.layers, group.window) for group in shape.groups] == [(3, None), (3, 24)]
    assert shape.places == ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2))
    facts = replace(pair_of(model).facts, has_draft=True)
    profiles = [make_profile(cache={"layer": layer}) for layer in [*range(6), "last"]]
    chosen = [resolve(profile, "specextend", facts).layer for profile in profiles]
    assert chosen == [0, 1, 1, 4, 4, 4, 4]


def test_64k_tokens_of_a_tiny_gemma_3(tmp_path):
    """Five of six layers keep a window, a chunk of the prompt and a tree, as was estimated."""
    settings = SIZES | {"num_hidden_layers": 6, "sliding_window": 512, "vocab_size": VOCAB}
    settings |= {"layer_types": ["sliding_attention"] * 5 + ["full_attention"]}
    settings |= {"max_position_embeddings": 131_072, "query_pre_attn_scalar": 16}
    make_oracle(Cell("gemma3_text", "long", settings), tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model, capacity = load(tmp_path, "target"), capacity_for(65_536)
    stored = [storage.nbytes for storage in Target(model, capacity, None).cache.storages]
    token = 2 * SIZES["num_key_value_heads"] * SIZES["head_dim"] * 4  # bytes, of a layer
    assert stored == [5 * (512 + 1024) * token, capacity * token]
    assert sum(stored) == cache_bytes(Pair(model, torch.ones(VOCAB)), capacity)


def test_the_text_part_of_a_checkpoint_that_reads_pictures(tmp_path):
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    text = SIZES | {"vocab_size": VOCAB, "sliding_window": 16, "query_pre_attn_scalar": 16}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    config.image_token_index = VOCAB - 1
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).eval()
    for weight in model.parameters():
        weight.data *= 4  # else all logits are alike
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    target = load(tmp_path, "target")
    assert isinstance(target.model, Decoder)
    prompt = make_prompt(30)
    ids = torch.tensor([prompt])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16,
        eos_token_id=sorted(target.eos_token_ids), pad_token_id=0,
    )  # fmt: skip
    pair = Pair(target, torch.ones(VOCAB, dtype=torch.bool))
    result = run(pair, make_profile(max_new_tokens=16), "lookup", prompt)
    assert result.tokens == theirs[0, 30:].tolist()
