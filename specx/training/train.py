"""Train one half of the embedded pair.

``python -m specx.training.train target --pool pool.npz --tokenizer DIR --out DIR`` runs the whole
curriculum on one GPU; under ``torchrun --nproc-per-node N`` N GPUs share each step. ``--share
0.001`` runs a few steps of it on any CPU. A run is a function of its seed, its arguments and N;
``--resume`` continues from the checkpoint in ``--out``.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specx.training.objective import Judge, Predictions, figures, predict
from specx.training.pool import Pool
from specx.training.recipes import RECIPES, Phase, Recipe
from specx.training.task import Batch, DigestDataset, Mixture
from specx.training.team import Team
from specx.training.texts import FIRST_TEXT

JUDGED, POINTED = 0.5, 0.1  # weights of these errors beside the loss of the tokens


def mirror_embeddings(weight: Tensor) -> None:
    """Make the rows of text tokens t and t ^ 1 equal in one half and opposite in the other.

    The control task writes t ^ 1 for t. With such rows, one linear map that changes a sign turns
    every t into t ^ 1. So training need not find 7,000 pairs by chance.
    """
    with torch.no_grad():
        text = weight[FIRST_TEXT:]
        text[1::2] = text[::2]
        text[1::2, weight.shape[1] // 2 :] *= -1


# Real prose and the hardest invention for each task: the rest lies between.
EVALUATED = {
    "real": Mixture({"real": 1.0}, control=0),
    "names": Mixture({"names": 1.0}, control=0),
    "echoes": Mixture({"echoes": 1.0}, control=0),
    "alphabet": Mixture({"alphabet": 1.0}, control=0),
    "variants": Mixture({"variants": 1.0}, control=0),
    "control": Mixture({"real": 1.0}, control=1),
}


def _errors(made: Predictions) -> dict[str, float]:
    errors: dict[str, Tensor] = {}
    if made.judge_errors is not None:
        errors["worth_error"], errors["score_error"] = made.judge_errors.detach()
    if made.pointing_error is not None:
        errors["pointing_error"] = made.pointing_error.detach()
    return {name: round(float(error), 4) for name, error in errors.items()}


def _optimizers(
    model: nn.Module, judge: nn.Module | None, rate: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings, norms and the judge."""
    inner = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    outer = [p for n, p in model.named_parameters() if p.ndim == 1 or "embed" in n]
    outer += judge.parameters() if judge else []
    return [
        torch.optim.Muon(inner, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, lr=rate, weight_decay=0.0, betas=(0.9, 0.98)),
    ]


class Trainer:
    """One run of a recipe: model, optimizers, position in the curriculum."""

    def __init__(
        self,
        recipe: Recipe,
        pool: Pool,
        out: Path,
        device: torch.device,
        seed: int,
        team: Team | None = None,
    ) -> None:
        torch.manual_seed(seed)  # the same weights everywhere in the team
        self.recipe, self.out, self.device, self.seed = recipe, out, device, seed
        self.team = team or Team()
        self.pool = pool
        self.model = LlamaForCausalLM(recipe.config)
        mirror_embeddings(self.model.model.embed_tokens.weight)
        self.model.to(device).set_attn_implementation("sdpa")
        self.judge: Judge | None = None
        if recipe.judged_layers is not None:
            self.judge = Judge(recipe.config.hidden_size, recipe.judged_layers).to(device)
        self.optimizers = _optimizers(self.model, self.judge, recipe.learning_rate)
        self.step = 0
        if device.type == "cuda":
            # One layer is compiled once a length and shared by all: the whole model would take
            # minutes to compile for every phase.
            for layer in self.model.model.layers:
                layer.compile()

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    def save(self) -> None:
        """Save the weights in bfloat16 in the hub's layout, and a checkpoint to resume from."""
        if not self.team.is_leader:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "judge": self.judge.state_dict() if self.judge else None,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
        }
        torch.save(state, self.checkpoint)
        small = LlamaForCausalLM(self.recipe.config)
        small.load_state_dict({k: v.float().cpu() for k, v in self.model.state_dict().items()})
        small.to(torch.bfloat16).save_pretrained(self.out / "model", max_shard_size="15MB")

    def start_from(self, weights: Path) -> None:
        """Begin with the weights of a model in the hub's layout instead of random weights."""
        ready = LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32)
        self.model.load_state_dict(ready.state_dict())

    def resume(self) -> None:
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        if self.judge:
            self.judge.load_state_dict(state["judge"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def run(self, minutes: float = math.inf) -> None:
        """Train to the end of the curriculum, printing figures every 100 steps.

        After ``minutes`` it stops with a checkpoint. A resumed run continues as if it had not
        stopped.
        """
        deadline = time.perf_counter() + 60 * minutes
        total = sum(phase.steps for phase in self.recipe.phases)
        begin = 0
        for phase in self.recipe.phases:
            end = begin + phase.steps
            if self.step < end:
                self._run_phase(phase, begin, total, deadline)
                self.save()
            if self.step < end:
                return
            begin = end

    def _run_phase(self, phase: Phase, begin: int, total: int, deadline: float) -> None:
        """Run the rest of a phase that begins at step ``begin`` of ``total``, and evaluate."""
        started, tokens_done, end = time.perf_counter(), 0, begin + phase.steps
        for batch in self._batches(phase, range(self.step, end)):
            made = self._update(batch, total)
            tokens_done += batch.tokens.numel()
            if self.step % 100 == 0 or self.step == end:
                elapsed = time.perf_counter() - started
                self._log(
                    phase,
                    loss=round(float(made.loss), 5),
                    **_errors(made),
                    **figures(batch, made.guess),
                    tokens_per_second=round(tokens_done / elapsed),
                )
            # To ask the others makes everybody wait, so a team does it seldom.
            asks = self.team.size == 1 or self.step % 100 == 0
            if asks and self.team.any(time.perf_counter() > deadline, self.device):
                return
        if not self.team.is_leader:
            return
        for length in sorted(set(phase.lengths)):
            self._log(phase, held_out_at=length, **self.evaluate(length))

    def _batches(self, phase: Phase, steps: range) -> Iterator[Batch]:
        mixture = self.recipe.mixture
        task = DigestDataset(
            self.pool.training, phase.lengths, phase.tokens, steps, self.seed, mixture, self.team
        )
        cuda = self.device.type == "cuda"
        loader = DataLoader(
            task,
            batch_size=None,
            num_workers=14 if cuda else 0,
            prefetch_factor=4 if cuda else None,
        )
        for batch in loader:
            yield Batch(*batch).to(self.device)

    def _rate(self, total: int) -> float:
        """Return the learning rate of this step: warm-up, and a cosine down to the floor."""
        recipe = self.recipe
        progress = self.step / total
        shape = recipe.floor + (1 - recipe.floor) * 0.5 * (1 + math.cos(math.pi * progress))
        return recipe.learning_rate * min(1.0, (self.step + 1) / recipe.warmup) * shape

    def _update(self, batch: Batch, total: int) -> Predictions:
        """Take one optimizer step; ``total``: the number of steps of the run."""
        recipe, rate = self.recipe, self._rate(total)
        with torch.autocast(self.device.type, torch.bfloat16):
            made = predict(self.model, batch, self.judge, recipe.pointers)
        loss = made.loss
        if made.judge_errors is not None:
            loss = loss + JUDGED * made.judge_errors.sum()
        if made.pointing_error is not None:
            loss = loss + POINTED * made.pointing_error
        loss.backward()
        judged = self.judge.parameters() if self.judge else ()
        self.team.average_gradients([*self.model.parameters(), *judged])
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return made._replace(loss=made.loss.detach())

    @torch.no_grad()
    def evaluate(self, length: int) -> dict[str, dict[str, float | None]]:
        """Return figures on held-out paragraphs, by sort of document, and for the control task."""
        found = {}
        for name, mixture in EVALUATED.items():
            task = DigestDataset(
                self.pool.evaluation, (length,), 8 * length, range(1), self.seed + 1, mixture
            )
            batch = task[0].to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16):
                found[name] = figures(batch, predict(self.model, batch).guess)
        return found

    def _log(self, phase: Phase, **measured: object) -> None:
        self.team.log(self.out, step=self.step, longest=max(phase.lengths), **measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=RECIPES)
    parser.add_argument("--pool", type=Path, required=True, help="tokenized corpus (.npz)")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after")
    parser.add_argument("--weights", type=Path, help="begin with the weights of this model")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    arguments = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
    recipe = RECIPES[arguments.role](tokenizer).shortened(arguments.share)
    team = Team.join()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pool = Pool.load(arguments.pool)
    trainer = Trainer(recipe, pool, arguments.out, device, arguments.seed, team)
    if arguments.resume and trainer.checkpoint.exists():
        trainer.resume()
    elif arguments.weights:
        trainer.start_from(arguments.weights)
    if team.is_leader:
        about = {"parameters": trainer.model.num_parameters(), "processes": team.size}
        print(json.dumps(about | {"phases": [asdict(phase) for phase in recipe.phases]}))
    trainer.run(arguments.minutes)
    team.leave()


if __name__ == "__main__":
    main()
