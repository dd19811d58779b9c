"""Training a head: what it begins with, a step, and the checkpoint that comes out."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import specx.models.embedded
from specx.models.head_files import load_head, open_head
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.training import head as recipe
from specx.training import outputs
from specx.training.eagle import head_for
from specx.training.head import STEPS, HeadTrainer, OutputLessons, unroll
from specx.training.outputs import NONE, TargetOutputs, Writer, load_target
from specx.training.team import Team

(FOLDER,) = map(Path, specx.models.embedded.__path__)
TARGET = FOLDER / "target"
CPU = torch.device("cpu")


def loaded(folder):
    """Return the spec of a head's files, read as the program reads them."""
    spec = ModelSpec(str(folder), None, "float32")
    target = load_model(ModelSpec("embedded:target", None, "float32"), "cpu", "target")
    return load_head(open_head(spec, CPU), spec, target).spec


def test_a_target_writes_what_plain_decoding_writes():
    writer = Writer(TARGET, CPU)
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
    writer = Writer(TARGET, CPU)
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
    target = load_target(TARGET, CPU)
    head = head_for(target, ids)
    lessons = OutputLessons(target, head, written, Team())
    tokens = written.held_out(20)
    reading = lessons.read(20, tokens)
    assert reading.first == 12
    for row in range(len(tokens)):
        for place in range(12, tokens.shape[1]):
            goal = tokens[row, place + 1] if place + 1 < tokens.shape[1] else NONE
            weight = float(goal in ids) * (recipe.PROMPTS if place + 1 < 20 else 1)
            assert reading.weights[row, place - 12] == pytest.approx(weight)
    trainer = HeadTrainer(tmp_path, head, lessons, 30, 3e-3, Team())
    before = distance(head, reading)
    for _ in range(30):
        trainer._update(reading, 0.0)
    assert distance(head, reading) < 0.7 * before
    assert len(trainer.evaluate()) == STEPS
    trainer.save()
    again = HeadTrainer(tmp_path, head_for(target, ids), lessons, 30, 3e-3, Team())
    again.resume()
    assert again.step == 30
    assert torch.equal(again.head.fc.weight, head.fc.weight)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(weights["d2t"] + torch.arange(40), ids)
    assert weights["t2d"].nonzero().flatten().tolist() == ids.tolist()
    assert loaded(tmp_path / "model").features == head.features
