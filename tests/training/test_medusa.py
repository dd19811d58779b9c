"""Training Medusa heads: what they learn, and the checkpoint that comes out."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer

from specx.bench.baselines.medusa import MedusaHeads, load_medusa
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.training.medusa import BLOCKS, EMBEDDED, HEADS, MedusaTrainer, TargetReading, read, write
from specx.training.pool import generated_pool
from specx.training.task import DigestDocuments


@torch.no_grad()
def losses(heads: MedusaHeads, reading: TargetReading) -> list[float]:
    logits = heads(reading.states)
    return [
        float(cross_entropy(each, reading.choices[:, head])) for head, each in enumerate(logits)
    ]


@pytest.mark.slow
def test_heads_learn_and_can_be_loaded(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
    pool = generated_pool(tokenizer, range(20, 30), 3000)
    trainer = MedusaTrainer(pool, 1e-3, minutes=10)
    documents = list(DigestDocuments(pool.training, 512).draw(0, 4))
    reading = read(trainer.target, documents)
    assert reading.choices.shape == (len(reading.states), HEADS)
    # What the target chooses behind a row is what the head before it has to guess from the next.
    ids, first = documents[0][0], documents[0][1] - 1
    with torch.no_grad():
        logits = trainer.target(ids[:, : first + HEADS + 1]).logits[0, first:]
    assert reading.choices[0].tolist() == logits.argmax(-1)[1:].tolist()
    before = losses(trainer.heads, reading)
    trainer.learn(reading, steps=20)
    after = losses(trainer.heads, reading)
    assert all(new < 0.9 * old for new, old in zip(after, before, strict=True))
    assert len(trainer.evaluate()) == HEADS
    write(trainer.heads, tmp_path)
    target = load_model(ModelSpec("embedded:target", None, "float32"), "cpu", "target")
    loaded = load_medusa(str(tmp_path), target)
    assert len(loaded) == HEADS
    assert len(loaded[0]) == BLOCKS
    ours, theirs = (heads(reading.states[:4]) for heads in (loaded, trainer.heads))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, atol=0.1)  # it is written in bfloat16
