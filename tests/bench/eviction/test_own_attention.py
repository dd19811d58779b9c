"""The draft's own attention, against what transformers' written-out attention says."""

from itertools import pairwise

import pytest
import torch

from specx.bench.eviction.reading import ReadingDrafter
from specx.bench.methods.catalog import find_method
from specx.bench.methods.drafters import build
from specx.bench.methods.variant import AT_PREFILL, Variant
from specx.engine.accept import Path
from specx.engine.target import PREFILL_CHUNK, Target
from tests.bench.settings import LIKE_IT, tiny_setting
from tests.engine.pairs import make_prompt
from tests.tiny import make_model

ROWS = 4  # queries that are kept: as many as a step can emit
PROMPT = make_prompt(30)
ROOT = 50


def prefilled(cache: dict, **settings: bool) -> tuple[ReadingDrafter, Target]:
    setting = tiny_setting(cache={"window": None, **cache})
    profile = find_method("own-attention").change(setting.profile)
    variant = Variant("own-attention", settings=settings)
    drafter = build(variant, profile, setting.pair, 200)
    assert isinstance(drafter, ReadingDrafter)
    target = Target(setting.pair.target, 300, None)
    list(drafter.prefill(torch.tensor(PROMPT), target))
    drafter.commit(Path.of(torch.tensor([ROOT])))
    return drafter, target


def step(drafter: ReadingDrafter, tokens: list[int]) -> None:
    """Draft, then emit ``tokens``."""
    drafter.grow(torch.tensor([ROOT]))
    padded = torch.tensor(tokens + tokens[-1:] * (ROWS - len(tokens)))
    drafter.commit(Path(torch.zeros_like(padded), padded, torch.tensor(len(tokens))))


def attention_of(text: list[int]) -> torch.Tensor:
    """[L, L]: of the last layer, mean over heads."""
    settings = dict(LIKE_IT)
    noise, peak, share = (settings.pop(key) for key in ("noise", "peak", "attention"))
    model = make_model("llama", settings["seed"])
    generator = torch.Generator().manual_seed(settings["seed"])
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator)
        model.get_output_embeddings().weight *= peak
        for layer in model.get_decoder().layers:
            layer.self_attn.o_proj.weight *= share
        model.set_attn_implementation("eager")
        return model(torch.tensor([text]), output_attentions=True).attentions[-1][0].mean(0)


def by_chunks(row: torch.Tensor, chunk: int) -> torch.Tensor:
    return torch.nn.functional.pad(row, (0, -len(row) % chunk)).view(-1, chunk).sum(-1)


@pytest.mark.parametrize("piece", [1024, 29, 16, 28])
def test_attention_adds_up_over_the_end_of_the_prompt_and_what_is_emitted(piece, monkeypatch):
    """Where everything is kept, the draft works on the text as it is."""
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", piece)
    drafter, target = prefilled({"chunk": 4, "top_k": 30})
    text = [*PROMPT, ROOT, 60, 61, 62]
    attention = attention_of(text)
    kept = min(ROWS, (len(PROMPT) - 1) % piece + 1)

    def assert_mass_of(rows: list[int]) -> None:
        expected = by_chunks(attention[rows].sum(0), 4)
        torch.testing.assert_close(drafter.memory._mass[: len(expected)], expected)
        assert not drafter.memory._mass[len(expected) :].any()

    read = list(range(30 - kept, 30))
    assert_mass_of(read)
    step(drafter, [60, 61])  # the root was read
    drafter.retrieve(target)
    assert_mass_of([*read, 30])
    step(drafter, [62])  # both tokens were read
    drafter.retrieve(target)
    assert_mass_of([*read, 30, 31, 32])


def test_the_prompt_counts_where_the_draft_begins_with_its_end():
    """And nothing is left for the first step that later steps do not do as well."""
    drafter, target = prefilled({"chunk": 4, "top_k": 3}, **{AT_PREFILL: False})
    memory, cache = drafter.memory, drafter.drafter.cache
    assert memory._places[: int(cache.working.length)].tolist() == list(range(20, 30))
    expected = by_chunks(attention_of(PROMPT)[30 - ROWS :].sum(0), 4)
    torch.testing.assert_close(memory._mass[: len(expected)], expected)
    before = memory._mass.clone()
    step(drafter, [60, 61])
    drafter.retrieve(target)
    gained = (memory._mass - before).nonzero().flatten().tolist()
    assert gained == [5, 6, 7]


def test_evicted_chunks_gather_no_more_attention():
    drafter, target = prefilled({"chunk": 4, "top_k": 3})
    memory, cache = drafter.memory, drafter.drafter.cache
    masses, emitted = [memory._mass.clone()], [1]
    for tokens in ([60, 61], [62, 63, 64, 65], [66], [67, 68, 69], [70]):
        step(drafter, tokens)
        kept = {place // 4 for place in memory._places[: int(cache.working.length)].tolist()}
        drafter.retrieve(target)
        masses.append(memory._mass.clone())
        gained = (masses[-1] - masses[-2]).nonzero().flatten().tolist()
        assert set(gained) <= kept
        emitted.append(len(tokens))
    gains = [float(after.sum() - before.sum()) for before, after in pairwise(masses)]
    assert gains == pytest.approx(emitted[:-1], rel=1e-5)  # each token read attends with weight 1


def test_the_memory_knows_where_its_rows_come_from():
    drafter, target = prefilled({"chunk": 4, "top_k": 3})
    memory, cache = drafter.memory, drafter.drafter.cache
    for tokens in ([60, 61], [62, 63, 64, 65], [66, 67, 68]):
        step(drafter, tokens)
        rows = int(cache.working.length)
        places = memory._places[:rows]
        values = cache.working.storage[:, 1, :, :rows]
        assert torch.equal(values, cache.store.storage[:, 1, :, places])
        drafter.retrieve(target)
    assert int(cache.store.length) == 30 + 1 + 2 + 4
