"""Training a head: what it begins with, a step, and the checkpoint that comes out."""

import gzip
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from specx.decoding.forward import cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import PrefillCall
from specx.models.head_files import load_head, open_head, open_mtp
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.training import head as recipe
from specx.training import outputs
from specx.training.eagle import LAYERS, UnrolledCall, head_for, make_head, make_mtp
from specx.training.head import (
    EMBEDDED,
    STEPS,
    DigestLessons,
    HeadTrainer,
    OutputLessons,
    unroll,
)
from specx.training.outputs import NONE, TargetOutputs, Writer, load_target
from specx.training.pool import generated_pool
from specx.training.team import Team

CPU = torch.device("cpu")


def test_a_head_learns_and_can_be_loaded(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
    target = load_target(EMBEDDED / "target", CPU)

    def trainer() -> HeadTrainer:
        head = make_head(target)
        pool = generated_pool(tokenizer, range(20, 32), 3000)
        lessons = DigestLessons(target, head, pool, Team())
        return HeadTrainer(tmp_path, head, lessons, 4, 1e-3, Team())

    first = trainer()
    readings = next(first.lessons.batches(range(1, 2)))
    with torch.no_grad():
        pairs = list(unroll(first.head, readings[0]))
    assert len(pairs) == STEPS
    assert all(ours.shape == theirs.shape for ours, theirs, _ in pairs)
    ours, theirs, _ = pairs[0]  # the pointers of the target find most of it before any training
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.4
    before = first.head.fc.weight.clone()
    first._update(readings, 0.0)
    assert not torch.equal(before, first.head.fc.weight)
    first.save()
    again = trainer()
    again.resume()
    assert again.step == 1
    assert loaded(tmp_path / "model").features == LAYERS


def test_a_head_for_multi_token_prediction_is_read_from_its_targets_checkpoint(tmp_path):
    target = load_target(EMBEDDED / "target", CPU)
    pool = generated_pool(AutoTokenizer.from_pretrained(EMBEDDED / "target"), range(20, 32), 3000)
    documents = next(DigestLessons(target, make_head(target), pool, Team()).batches(range(1, 2)))
    head = make_mtp(target, [each.tokens for each in documents])
    lessons = DigestLessons(target, head, pool, Team())
    readings = next(lessons.batches(range(1, 2)))[:2]
    with torch.no_grad():
        ours, theirs, _ = next(unroll(head, readings[0]))
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.2  # before any training
    trainer = HeadTrainer(tmp_path, head, lessons, 4, 1e-3, Team())
    before = head.fc.weight.clone()
    trainer._update(readings, 0.0)
    assert not torch.equal(before, head.fc.weight)
    trainer.save()
    head.load_state_dict({name: each.bfloat16() for name, each in head.state_dict().items()})

    spec = ModelSpec(str(tmp_path / "model"), None, "float32")
    found = load_head(open_mtp(spec), spec, load_model(spec, "cpu", "target"))
    ids, call = readings[0].tokens[0], UnrolledCall(starts=[0])
    count = len(ids) - 1
    rows, hidden = torch.arange(count), readings[0].features[:, :-1]
    cache = PreallocatedCache(cache_shape(found), 2 * count)
    with torch.no_grad():
        expected = head(ids[None, 1:], hidden, rows[None], rows, call)
        own = found.model.run(
            (ids[1:], found.model.project(hidden[0]), rows),
            PrefillCall(ops=found.ops, mapping=cache.mapping(count), past=0),
        )
    for each, other in zip(own, expected, strict=True):
        torch.testing.assert_close(each, other[0], atol=1e-3, rtol=1e-3)


def loaded(folder):
    """Return the spec of a head's files, read as the program reads them."""
    spec = ModelSpec(str(folder), None, "float32")
    target = load_model(ModelSpec("embedded:target", None, "float32"), "cpu", "target")
    return load_head(open_head(spec, CPU), spec, target).spec


def test_a_target_writes_what_plain_decoding_writes():
    writer = Writer(EMBEDDED / "target", CPU)
    texts = ["The mill stands by the river. " * 40, "Nobody came. " * 90]
    prompts = torch.tensor([writer.kind.encode(text)[:200] for text in texts])
    written = writer.write(prompts)
    assert torch.equal(written[:, :200].long(), prompts)
    for row in written.long():
        output = row[200:][row[200:] != NONE]
        ids = row[: 200 + len(output)][None]
        with torch.no_grad():
            expected = writer.target(ids).logits[0, 199:-1].argmax(-1)
        assert torch.equal(output, expected)
        assert len(output) == outputs.TOKENS or int(output[-1]) in writer.ends


def test_prompts_of_a_batch_have_one_length_and_end_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "LENGTHS", (120, 60))
    monkeypatch.setattr(outputs, "BATCH", 240)
    writer = Writer(EMBEDDED / "target", CPU)
    texts = [f"Text {i} tells of a mill by the river. " * (20 if i % 2 else 4) for i in range(7)]
    with gzip.open(tmp_path / "texts.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in [*texts, "short"])
    read = outputs.read_texts(tmp_path / "texts.gz")
    batches = list(outputs._batches(writer, read))
    assert [(len(batch), len(batch[0])) for batch in batches] == [(2, 120), (4, 60), (1, 120)]
    behind = writer.kind.encode("a text")[-len(writer._behind) :]
    for batch in batches:
        for prompt in batch:
            assert len(prompt) == len(batch[0])
            assert prompt[len(prompt) - len(behind) :] == behind


def made_outputs(count: int, prompt: int) -> TargetOutputs:
    """Return outputs of 5 to 29 tokens behind prompts; the ids from 200 on are frequent."""
    tokens = torch.randint(200, 260, (count, prompt + 30), dtype=torch.int32)
    for row in range(count):
        tokens[row, prompt + 5 + row % 25 :] = NONE
    return TargetOutputs({prompt: tokens})


def cut(row: torch.Tensor) -> list[int]:
    return [int(token) for token in row if token != NONE]


def test_every_output_is_drawn_once_an_epoch_and_none_is_held_out(monkeypatch):
    monkeypatch.setattr(outputs, "STEP", 1200)
    written = made_outputs(40, 20)
    teams = [Team(rank, 2) for rank in range(2)]
    drawn = [list(written.drawn(range(9), team)) for team in teams]
    assert all(length == 20 for team in drawn for length, _ in team)
    epoch = len(written._shuffled(np.random.default_rng(0), 2))
    rows = [cut(row) for team in drawn for _, tokens in team[:epoch] for row in tokens]
    expected = [cut(row) for row in written.written[20][outputs.HELD_OUT :]]
    assert sorted(rows) == sorted(expected)
    later = list(written.drawn(range(3, 9), teams[0]))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(later, drawn[0][3:], strict=True))


@torch.no_grad()
def distance(head: recipe.Head, reading: recipe.TeacherReading) -> float:
    """Return how far a head's first guesses are from the target's, where they are learned."""
    ours, theirs, weights = next(unroll(head, reading))
    parts = torch.nn.functional.kl_div(
        ours.log_softmax(-1), theirs.log_softmax(-1), reduction="none", log_target=True
    )
    return float((parts.sum(-1) * weights).sum() / weights.sum())


def test_a_head_for_outputs_learns_what_is_known_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "BEHIND", 8)
    monkeypatch.setattr(outputs, "STEP", 600)
    torch.manual_seed(0)
    written = made_outputs(24, 20)
    written.written[20][:, 25] = 3  # more frequent than any other
    ids = written.frequent(40)
    assert len(ids) == 40
    assert 3 in ids
    assert torch.equal(ids, ids.sort().values)
    target = load_target(EMBEDDED / "target", CPU)
    head = head_for(target, ids)
    lessons = OutputLessons(target, head, written, Team())
    tokens = written.held_out(20)
    reading = lessons._read(20, tokens)
    assert reading.first == 12
    for row in range(len(tokens)):
        for place in range(12, tokens.shape[1]):
            goal = tokens[row, place + 1] if place + 1 < tokens.shape[1] else NONE
            weight = float(goal in ids) * (recipe.PROMPTS if place + 1 < 20 else 1)
            assert reading.weights[row, place - 12] == pytest.approx(weight)
    trainer = HeadTrainer(tmp_path, head, lessons, 30, 3e-3, Team())
    before = distance(head, reading)
    for _ in range(30):
        trainer._update([reading], 0.0)
    assert distance(head, reading) < 0.7 * before
    assert len(trainer.evaluate()) == STEPS
    trainer.save()
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(weights["d2t"] + torch.arange(40), ids)
    assert weights["t2d"].nonzero().flatten().tolist() == ids.tolist()
    assert loaded(tmp_path / "model").features == head.features
