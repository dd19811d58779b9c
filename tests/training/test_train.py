"""Runs of the recipes, in miniature."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specx.training.pool import Pool
from specx.training.recipes import (
    RECIPES,
    Phase,
    Recipe,
    draft_recipe,
    further_target_recipe,
    target_recipe,
)
from specx.training.texts import FIRST_TEXT
from specx.training.train import Trainer, mirror_embeddings

from .conftest import miniature


@pytest.mark.parametrize("role", RECIPES)
def test_a_short_run_of_each_recipe(
    role: str, pool: Pool, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    recipe = miniature(RECIPES[role](tokenizer))
    recipe = replace(recipe, phases=(Phase((128,), 1, tokens=512),))
    trainer = Trainer(recipe, pool, tmp_path, torch.device("cpu"), seed=1)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.run()
    after = trainer.model.state_dict()
    assert trainer.step == 1
    assert all(value.isfinite().all() for value in after.values())
    assert any(not torch.equal(value, before[name]) for name, value in after.items())
    step, evaluation = (json.loads(line) for line in (tmp_path / "curve.jsonl").open())
    assert ("score_error" in step) == (recipe.judged_layers is not None)
    assert ("pointing_error" in step) == bool(recipe.pointers)
    assert evaluation["held_out_at"] == 128
    assert LlamaForCausalLM.from_pretrained(tmp_path / "model").config.vocab_size == len(tokenizer)


@pytest.mark.slow
def test_training_learns_saves_and_resumes(
    pool: Pool, draft: Recipe, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    whole = Trainer(draft, pool, tmp_path / "whole", cpu, seed=1)
    whole.run()
    # The same run, interrupted after its first step.
    first = Trainer(draft, pool, tmp_path / "halves", cpu, seed=1)
    first.run(minutes=0)
    assert first.step == 1
    second = Trainer(draft, pool, tmp_path / "halves", cpu, seed=99)
    second.seed = 1
    second.resume()
    second.run()
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], value)
    curve = [json.loads(line) for line in (tmp_path / "whole" / "curve.jsonl").open()]
    losses = [line["loss"] for line in curve if "loss" in line]
    assert losses[-1] < losses[0]
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "whole" / "model")
    assert saved.config.vocab_size == len(tokenizer)


@pytest.mark.slow
def test_two_processes_train_one_model(folder: Path, tmp_path: Path) -> None:
    """Both draw their own documents; what is saved is the leader's, and the others have it too."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(Path(__file__).parent / "team_of_two.py")]
    command += [str(folder), str(tmp_path)]
    subprocess.run(command, check=True, timeout=240, env=os.environ | {"OMP_NUM_THREADS": "1"})
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)["model"]
    assert first["step"] == second["step"] == 4
    assert first["drawn"] != second["drawn"]
    for name, value in first["model"].items():
        assert torch.equal(value, second["model"][name])
        assert torch.equal(value, saved[name])


def test_recipes_are_the_shipped_shapes(tokenizer: PreTrainedTokenizerFast) -> None:
    target, draft = target_recipe(tokenizer), draft_recipe(tokenizer)
    assert max(max(p.lengths) for p in target.phases) == target.config.max_position_embeddings
    assert further_target_recipe(tokenizer).config.to_dict() == target.config.to_dict()
    assert max(max(p.lengths) for p in draft.phases) == 1024
    assert target.shortened(0.001).phases[0].steps == 1


def test_mirrored_embeddings_differ_by_the_sign_of_a_half() -> None:
    weight = torch.randn(FIRST_TEXT + 6, 8)
    special = weight[:FIRST_TEXT].clone()
    mirror_embeddings(weight)
    assert torch.equal(weight[:FIRST_TEXT], special)
    text = weight[FIRST_TEXT:]
    assert torch.equal(text[1::2, :4], text[::2, :4])
    assert torch.equal(text[1::2, 4:], -text[::2, 4:])


def test_training_starts_from_other_weights(pool: Pool, draft: Recipe, tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    one = Trainer(draft, pool, tmp_path / "one", cpu, seed=1)
    one.save()
    other = Trainer(draft, pool, tmp_path / "other", cpu, seed=2)
    other.start_from(tmp_path / "one" / "model")
    for name, value in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value.bfloat16().float())
