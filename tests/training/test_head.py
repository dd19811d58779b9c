"""Training a head: what it begins with, a step, and the checkpoint that comes out."""

import torch
from transformers import AutoTokenizer

from specx.models.head_files import load_head, open_head
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.training.head import (
    EMBEDDED,
    LAYERS,
    LENGTHS,
    MIXTURE,
    STEPS,
    HeadTrainer,
    read,
    unroll,
)
from specx.training.pool import generated_pool
from specx.training.task import DigestDataset


def test_a_head_learns_and_can_be_loaded(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
    pool = generated_pool(tokenizer, range(20, 32), 3000)
    trainer = HeadTrainer(tmp_path, pool, 4, 1e-3, torch.device("cpu"))
    batch = DigestDataset(pool.training, LENGTHS, 2048, range(1, 2), 0, MIXTURE)[0]
    reading = next(read(trainer.target, batch))
    with torch.no_grad():
        pairs = list(unroll(trainer.head, reading))
    assert len(pairs) == STEPS
    assert all(ours.shape == theirs.shape for ours, theirs in pairs)
    ours, theirs = pairs[0]  # the pointers of the target find most of it before any training
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.4
    before = trainer.head.fc.weight.clone()
    trainer._update(batch)
    assert not torch.equal(before, trainer.head.fc.weight)
    trainer.save()
    again = HeadTrainer(tmp_path, pool, 4, 1e-3, torch.device("cpu"))
    again.resume()
    assert again.step == 1
    spec = ModelSpec(str(tmp_path / "model"), None, "float32")
    files = open_head(spec, torch.device("cpu"))
    target = load_model(ModelSpec("embedded:target", None, "float32"), "cpu", "target")
    assert load_head(files, spec, target).spec.features == LAYERS
