"""Heads for further tokens in a target's own checkpoint (multi-token prediction), as drafts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specx.decoding.head_drafter import HeadDrafter
from specx.decoding.methods import Pair
from specx.errors import ModelError
from specx.models.call import PrefillCall
from specx.models.compat import head_facts
from specx.models.head_files import load_head, open_mtp
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.models.source import own_files
from specx.profile import Profile, profile_for
from specx.runs.pair import load_pair
from tests.decoding.pairs import make_profile, make_prompt, run
from tests.models.families import CELLS, Cell, randomize
from tests.models.families import make_pair as make_oracle
from tests.models.gguf.test_families import CASES, made
from tests.models.gguf.test_load import write_tokenizer
from tests.models.gguf.writer import write_model
from tests.tiny import VOCAB, make_tokenizer

WITH_HEADS = [
    cell
    for cell in CELLS
    if cell.feature
    in ("a delta rule", "a delta rule, joined maps, experts", "a text part, a delta rule, experts",
        "groups, a correction")
]  # fmt: skip
HEADS = pytest.mark.parametrize("cell", WITH_HEADS, ids=str)


AROUND = {
    "fc.weight": "eh_proj.weight",
    "pre_fc_norm_embedding.weight": "enorm.weight",
    "pre_fc_norm_hidden.weight": "hnorm.weight",
    "norm.weight": "shared_head.norm.weight",
}


class Head(nn.Module):
    """The head as transformers' layers make it: an oracle."""

    def __init__(self, oracle: nn.Module) -> None:
        super().__init__()
        decoder = oracle.get_decoder()
        config = decoder.config
        self.is_layer = config.model_type == "glm4_moe"  # one more, behind the others
        self.number = config.num_hidden_layers
        at = 1 if self.is_layer else config.layer_types.index("full_attention")
        norm, hidden = type(decoder.norm), config.hidden_size
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(hidden, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList([type(decoder.layers[at])(config, at)])
        self.norm = norm(hidden, eps=config.rms_norm_eps)

    @torch.no_grad()
    def forward(self, oracle: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
        """States and logits behind each token of ids [L] but the first."""
        decoder = oracle.get_decoder()
        hidden = decoder(ids[None], use_cache=False).last_hidden_state[:, :-1]
        embedded = decoder.embed_tokens(ids[None, 1:])
        parts = self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)
        x, count = self.fc(torch.cat(parts, -1)), len(ids) - 1
        positions = torch.arange(count)[None]
        mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
        angles = decoder.rotary_emb(x, positions)
        x = self.layers[0](x, position_embeddings=angles, attention_mask=mask)
        states = self.norm(x)
        return (x if self.is_layer else states)[0], oracle.lm_head(states)[0]

    def written(self) -> dict[str, Tensor]:
        """Its tensors by the names of published checkpoints."""
        found, by_number = {}, type(self.layers[0]).__name__.startswith(("Qwen3Next", "Glm4"))
        for name, each in self.state_dict().items():
            if name.endswith("experts.gate_up_proj") and by_number:
                for expert, both in enumerate(each):
                    stem = f"mtp.{name.removesuffix('gate_up_proj')}{expert}."
                    gate, up = both.chunk(2)
                    found |= {f"{stem}gate_proj.weight": gate, f"{stem}up_proj.weight": up}
            elif name.endswith("experts.down_proj") and by_number:
                for expert, own in enumerate(each):
                    stem = f"mtp.{name.removesuffix('down_proj')}{expert}."
                    found[f"{stem}down_proj.weight"] = own
            else:
                found[f"mtp.{name}"] = each
        if self.is_layer:
            found = {self._in_layer(name): each for name, each in found.items()}
        return {name: each.clone().contiguous() for name, each in found.items()}

    def _in_layer(self, name: str) -> str:
        own = name.removeprefix("mtp.")
        return f"model.layers.{self.number}." + AROUND.get(own, own.removeprefix("layers.0."))


def write(cell: Cell, folder: Path, *, head: bool = True) -> tuple[nn.Module, Head]:
    settings = cell.settings | {"vocab_size": VOCAB, "max_position_embeddings": 128}
    made = make_oracle(replace(cell, settings=settings), folder)
    own = Head(made.oracle)
    randomize(own)
    own.eval()
    make_tokenizer().save_pretrained(folder)
    if head:
        file = folder / "model.safetensors"
        save_file(load_file(file) | own.written(), file, {"format": "pt"})
    return made.oracle, own


def loaded(folder: Path) -> Pair:
    spec = ModelSpec(str(folder))
    target = load_model(spec, "cpu", "target")
    head = load_head(open_mtp(spec), ModelSpec("mtp"), target)
    target_allowed, draft_allowed = head_facts(target, head)
    return Pair(target, target_allowed, head, draft_allowed)


@HEADS
def test_a_head_computes_what_transformers_layers_compute(cell, tmp_path):
    oracle, own = write(cell, tmp_path)
    pair, ids = loaded(tmp_path), torch.tensor(make_prompt(30))
    states, expected = own(oracle, ids)
    head, cache = pair.draft, HeadCache(pair)
    with torch.no_grad():
        hidden = oracle.get_decoder()(ids[None], use_cache=False).last_hidden_state[0, :-1]
    rows = ids[1:], head.model.project(hidden), torch.arange(29)
    found, logits = head.model.run(rows, cache.call(29))
    assert float((logits - expected).abs().max()) < 1e-4
    assert float((found - states).abs().max()) < 1e-4  # which is what is fed back


class HeadCache:
    """Room for a head's keys and values."""

    def __init__(self, pair: Pair) -> None:
        from specx.decoding.forward import cache_shape
        from specx.decoding.kv_cache import PreallocatedCache

        self.pair, self.cache = pair, PreallocatedCache(cache_shape(pair.draft), 64)

    def call(self, rows: int) -> PrefillCall:
        return PrefillCall(ops=self.pair.draft.ops, mapping=self.cache.mapping(rows), past=0)


@HEADS
def test_texts_with_a_head_are_those_of_transformers(cell, tmp_path):
    oracle, _ = write(cell, tmp_path)
    prompt = make_prompt(41, seed=1)
    ids = torch.tensor([prompt])
    pair = loaded(tmp_path)
    theirs = oracle.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=16,
        eos_token_id=sorted(pair.target.eos_token_ids), pad_token_id=0,
    )  # fmt: skip
    expected = theirs[0, len(prompt) :].tolist()
    profile = make_profile(
        cache={"chunk": 4, "top_k": 3, "every": 2, "window": 8}, max_new_tokens=16
    )
    methods = ("tree", "specextend", "streaming", "specextend+lookup")
    for method in methods[WITH_HEADS.index(cell) % 2 :: 2]:
        result = run(pair, profile, method, prompt)
        assert result.tokens == expected, method
        assert sum(step.drafted for step in result.steps) > 0


def test_the_head_in_a_folder_is_the_draft_unless_another_is_named(tmp_path):
    cell = WITH_HEADS[0]
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    write(cell, tmp_path / "with")
    write(cell, tmp_path / "without", head=False)
    own, none = str(tmp_path / "with"), str(tmp_path / "without")
    assert profile_for(None, own, None).draft.model == "mtp"
    assert profile_for("mini", own, None).draft.model == "mtp"
    assert profile_for(None, own, "none").draft is None
    assert profile_for(None, own, none).draft.model == none
    assert profile_for(None, none, None).draft is None
    cpu = torch.device("cpu")
    pair = load_pair(profile_for(None, own, None), "specextend", cpu)
    assert pair.draft.source == "mtp"
    assert pair.draft.weight_bytes < pair.target.weight_bytes
    with pytest.raises(ModelError, match=r"has no (supported )?head for multi-token"):
        load_pair(profile_for(None, none, "mtp"), "specextend", cpu)


def test_the_head_of_a_hub_model_is_its_draft(tmp_path, monkeypatch):
    """Once its small files are there; without any, nothing drafts."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert profile_for(None, "org/hybrid", None, own_files).draft is None
    snapshot = tmp_path / "models--org--hybrid" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--org--hybrid" / "refs").mkdir()
    (tmp_path / "models--org--hybrid" / "refs" / "main").write_text(snapshot.name)
    write(WITH_HEADS[0], snapshot)
    profile = profile_for(None, "org/hybrid", None, own_files)
    assert (profile.target.model, profile.draft.model) == ("org/hybrid", "mtp")
    assert profile_for(None, "org/hybrid", "none", own_files).draft is None
    assert load_pair(profile, "specextend", torch.device("cpu")).draft.source == "mtp"


def test_the_head_of_a_model_of_ollamas_is_its_draft(tmp_path, monkeypatch):
    architecture, model_type, settings = CASES["qwen3.5"]
    settings = settings | {"vocab_size": VOCAB}
    model, file = made(model_type, settings), tmp_path / "model.gguf"
    head = Head(model).eval().state_dict()
    write_model(file, model, architecture, stated=settings, head=head, tokenizer=write_tokenizer)
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "hybrid" / "4b"
    manifest.parent.mkdir(parents=True)
    digest, kind = "0" * 64, "application/vnd.ollama.image.model"
    layers = [{"mediaType": kind, "digest": f"sha256:{digest}"}]
    manifest.write_text(json.dumps({"layers": layers}))
    assert profile_for(None, "ollama:hybrid:4b", None, own_files).draft is None  # its file is gone
    (tmp_path / "blobs").mkdir()
    file.rename(tmp_path / "blobs" / f"sha256-{digest}")
    profile = profile_for(None, "ollama:hybrid:4b", None, own_files)
    assert profile.draft.model == "mtp"
    assert load_pair(profile, "tree", torch.device("cpu")).draft.source == "mtp"


def test_a_profile_names_the_head(tmp_path):
    write(WITH_HEADS[0], tmp_path)
    keys = {"name": "own", "target": {"model": str(tmp_path)}, "draft": {"model": "mtp"}}
    profile = Profile.model_validate(keys | {"prompt": {"kind": "instruct"}})
    assert isinstance(load_pair(profile, "tree", torch.device("cpu")).draft.spec.features, tuple)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda kept: kept.pop("mtp.fc.weight"), "lacks 1 of its tensors, such as fc.weight"),
        (
            lambda kept: kept.update({"mtp.layers.0.extra.weight": torch.zeros(3)}),
            "such as layers.0.extra.weight",
        ),
        (
            lambda kept: kept.update({"mtp.norm.weight": torch.zeros(3)}),
            r"norm.weight of shape \[3\]",
        ),
    ],
)
def test_a_damaged_head_is_refused(tmp_path, change, message):
    write(WITH_HEADS[0], tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ModelError, match=message):
        loaded(tmp_path)


def test_further_layers_of_a_head_are_not_read(tmp_path):
    write(WITH_HEADS[0], tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    second = {
        name.replace("layers.0", "layers.1"): each.clone()
        for name, each in tensors.items()
        if name.startswith("mtp.layers.0")
    }
    save_file(tensors | second, file, {"format": "pt"})
    pair = loaded(tmp_path)
    assert pair.draft.num_layers == 1
    assert HeadDrafter.shift == 1


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3-next", "qwen3.5 moe", "glm 4.5"])
def test_the_layer_for_further_tokens_of_a_gguf_file(name, tmp_path):
    """What it computes, and that texts by all methods are those of transformers."""
    architecture, model_type, settings = CASES[name]
    settings = settings | {"vocab_size": VOCAB}
    model, file = made(model_type, settings), tmp_path / "model.gguf"
    own = Head(model)
    randomize(own)
    head = own.eval().state_dict()
    write_model(file, model, architecture, stated=settings, head=head, tokenizer=write_tokenizer)
    assert profile_for(None, str(file), None).draft.model == "mtp"
    pair, ids = loaded(file), torch.tensor(make_prompt(30))
    states, expected = own(model, ids)
    with torch.no_grad():
        hidden = model.get_decoder()(ids[None], use_cache=False).last_hidden_state[0, :-1]
    rows = ids[1:], pair.draft.model.project(hidden), torch.arange(29)
    found, logits = pair.draft.model.run(rows, HeadCache(pair).call(29))
    scale = float(expected.abs().max())
    assert float((logits - expected).abs().max()) < 1e-4 * max(1, scale)
    assert float((found - states).abs().max()) < 1e-4

    theirs = model.generate(
        ids[None], attention_mask=torch.ones_like(ids[None]), do_sample=False, max_new_tokens=12,
        eos_token_id=sorted(pair.target.eos_token_ids), pad_token_id=0,
    )  # fmt: skip
    result = run(pair, make_profile(max_new_tokens=12), "specextend", ids.tolist())
    assert result.tokens == theirs[0, len(ids) :].tolist()


def test_a_file_without_such_a_layer(tmp_path):
    architecture, model_type, settings = CASES["qwen3.5"]
    file = tmp_path / "model.gguf"
    write_model(file, made(model_type, settings), architecture, stated=settings)
    assert profile_for(None, str(file), None).draft is None
    with pytest.raises(ModelError, match=r"has no (supported )?head for multi-token"):
        open_mtp(ModelSpec(str(file)))
