"""One process of ``test_two_processes_train_one_model``: ``team_of_two.py DATA OUT``."""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from specx.training.pool import Pool
from specx.training.recipes import Phase, draft_recipe
from specx.training.team import Team
from specx.training.train import Trainer

data, out = map(Path, sys.argv[1:])
team = Team.join()
recipe = draft_recipe(PreTrainedTokenizerFast.from_pretrained(data / "tokenizer"))
recipe.config.update({"hidden_size": 48, "intermediate_size": 64, "head_dim": 8})
recipe = replace(
    recipe, phases=(Phase((128, 256), 4, tokens=1024),), warmup=1, judged_layers=(1, 2)
)
pool = Pool.load(data / "pool.npz")
pool = replace(pool, held_out=len(pool) // 4)
trainer = Trainer(recipe, pool, out / "out", torch.device("cpu"), seed=1, team=team)
drawn = int(next(trainer._batches(recipe.phases[0], range(1))).tokens.sum())
trainer.run()
state = {"step": trainer.step, "drawn": drawn, "model": trainer.model.state_dict()}
torch.save(state, out / f"{team.rank}.pt")
team.leave()
