"""Train one half of the embedded pair.

``python -m specx.training.train target --pool pool.npz --tokenizer DIR --out DIR`` runs the whole
curriculum on one GPU in minutes; ``--share 0.001`` runs a few steps of it on any CPU. A run is a
function of its seed and arguments; ``--resume`` continues from the checkpoint in ``--out``.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specx.training.pool import Pool
from specx.training.task import CHOICE, COPY, FIRST_MARKER, Batch, DigestTask, Mixture
from specx.training.texts import FIRST_TEXT

JUDGED = 0.2  # weight of the judge's error beside the loss of the tokens


@dataclass(frozen=True)
class Phase:
    """``steps`` optimizer steps on batches of ``tokens`` tokens; each has one of ``lengths``."""

    lengths: tuple[int, ...]
    steps: int
    tokens: int = 65536


class Judge(nn.Module):
    """Learns a paragraph's score from the target's hidden states behind it; not part of the model.

    The choice of a few paragraphs out of hundreds teaches slowly what makes a good one. The judge
    asks it of every paragraph, and so brings the knowledge into the lower ``layers`` of the model,
    where the choice finds it.
    """

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden_states: tuple[Tensor, ...], scores: Tensor) -> Tensor:
        """Mean squared error of ``scores`` [B, L], NaN where there is none."""
        known = ~scores.isnan()
        states = nn.functional.rms_norm(
            hidden_states[self.layers][known], (self.score.in_features,)
        )
        errors: Tensor = (self.score(states).float()[:, 0] - scores[known]).square()
        return errors.sum() / known.sum().clamp(min=1)


@dataclass(frozen=True)
class Recipe:
    """A model and its curriculum."""

    config: LlamaConfig
    phases: tuple[Phase, ...]
    mixture: Mixture = field(default_factory=Mixture)
    learning_rate: float = 2e-3
    warmup: int = 200
    floor: float = 0.03  # of the learning rate, reached at the last step
    judged_layers: int | None = None  # layers below the judge, None: no judge

    def shortened(self, share: float) -> "Recipe":
        """The same curriculum with a share of the steps, at least one a phase."""
        phases = tuple(replace(p, steps=max(1, round(p.steps * share))) for p in self.phases)
        return replace(self, phases=phases, warmup=max(1, round(self.warmup * share)))


def _llama(tokenizer: PreTrainedTokenizerFast, theta: float, **shape: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )


def target_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """Documents of 256 to 24K tokens."""
    config = _llama(
        tokenizer,
        theta=1e6,
        hidden_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=1024,
        max_position_embeddings=24576,
    )
    short, middle = (512, 1024, 2048), (512, 1024, 2048, 4096, 8192)
    long = (*middle, 4096, 8192, 16384, 16384, 24576)
    phases = (
        Phase((512,), 600),
        Phase((512, 1024), 1200),
        Phase((*short, 4096), 1200),
        Phase(middle, 1500),
        Phase(long, 9000),
        Phase((*long, 8192, 16384, 24576, 24576), 4500),
    )
    return Recipe(config, phases, judged_layers=5)


def draft_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """1.7 M parameters, never more than 1,024 tokens: the draft knows nothing of long input."""
    config = _llama(
        tokenizer,
        theta=1e4,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=1024,
    )
    phases = (Phase((512,), 4000), Phase((512, 1024, 1024), 4000))
    return Recipe(config, phases)


RECIPES = {"target": target_recipe, "draft": draft_recipe}


class Predictions(NamedTuple):
    """``loss``: the weighted mean; ``guess`` int64 [B, L]: the likeliest token, −1 where none was
    asked for; ``score_error``: mean squared error of the paragraphs' scores, None without a judge.
    """

    loss: Tensor
    guess: Tensor
    score_error: Tensor | None


def predict(model: LlamaForCausalLM, batch: Batch, judge: Judge | None = None) -> Predictions:
    """Run a batch. Tokens of weight 0 are not predicted, which saves most of the logits."""
    outputs = model.model(
        input_ids=batch.tokens, use_cache=False, output_hidden_states=judge is not None
    )
    counted = batch.weights > 0
    counted[:, 0] = False
    goal, weights = batch.tokens[counted], batch.weights[counted]
    logits = model.lm_head(outputs.last_hidden_state[:, :-1][counted[:, 1:]])
    losses = nn.functional.cross_entropy(logits.float(), goal, reduction="none")
    # Choices that count have targets of their own.
    choices = (batch.parts == CHOICE)[counted]
    targets = batch.targets[batch.weights[batch.parts == CHOICE] > 0]
    markers = logits[choices].float().log_softmax(-1)
    markers = markers[:, FIRST_MARKER : FIRST_MARKER + targets.shape[1]]
    losses[choices] = -(targets * markers).sum(-1)
    guess = torch.full_like(batch.tokens, -1)
    guess[counted] = logits.argmax(-1)
    loss = (losses * weights).sum() / weights.sum()
    error = judge(outputs.hidden_states, batch.scores) if judge else None
    return Predictions(loss, guess, error)


def figures(batch: Batch, guess: Tensor) -> dict[str, float]:
    """What was predicted right, as shares.

    ``copied`` tokens; ``whole`` sentences; ``choice`` of the best paragraph; ``gain``: how far the
    score of the chosen paragraph lies between its section's mean (0) and its best (1).
    """
    counted, marker = batch.weights > 0, batch.parts == CHOICE
    right = guess == batch.tokens
    copied = (batch.parts == COPY) & counted
    sentence = marker.flatten().cumsum(0)  # numbers the sentences of the whole batch
    wrong = torch.zeros(int(sentence[-1]) + 1, device=right.device)
    size = torch.zeros_like(wrong)
    wrong.index_add_(0, sentence, (copied & ~right).flatten().float())
    size.index_add_(0, sentence, copied.flatten().float())
    return {
        "copied": round(float(right[copied].float().mean()), 5),
        "whole": round(float((wrong[size > 0] == 0).float().mean()), 4),
        "choice": round(float(right[marker & counted].float().mean()), 4),
        "gain": round(_gain(batch.targets, guess[marker] - FIRST_MARKER), 4),
    }


def _judged(error: Tensor | None) -> dict[str, float]:
    return {} if error is None else {"score_error": round(float(error.detach()), 3)}


def _gain(targets: Tensor, chosen: Tensor) -> float:
    """Mean gain of the choices, where there is something to choose: ``targets`` [M, markers]."""
    inside = targets > 0
    scores = targets.clamp(min=1e-30).log()  # up to a factor and a constant
    best = scores.amax(1)
    mean = scores.where(inside, scores.new_zeros(())).sum(1) / inside.sum(1)
    at = chosen.clamp(0, targets.shape[1] - 1)[:, None]
    known = inside.gather(1, at)[:, 0] & (chosen >= 0)
    gained = (scores.gather(1, at)[:, 0] - mean).where(known, mean.new_zeros(()))
    open_ = best - mean > 1e-3
    return float((gained / (best - mean))[open_].mean())


def mirror_embeddings(weight: Tensor) -> None:
    """Make the rows of text tokens t and t ^ 1 equal in one half and opposite in the other.

    The control task writes t ^ 1 for t. With such rows one linear map, the change of a sign, does
    it for all tokens, and training starts from there instead of finding 7,000 pairs by chance.
    """
    with torch.no_grad():
        text = weight[FIRST_TEXT:]
        text[1::2] = text[::2]
        text[1::2, weight.shape[1] // 2 :] *= -1


# Real prose and the hardest invention for each task: the rest lies between.
EVALUATED = {
    "real": Mixture({"real": 1.0}, control=0),
    "names": Mixture({"names": 1.0}, control=0),
    "alphabet": Mixture({"alphabet": 1.0}, control=0),
    "variants": Mixture({"variants": 1.0}, control=0),
    "control": Mixture({"real": 1.0}, control=1),
}


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
    """One run of a recipe: model, optimizer, position in the curriculum."""

    def __init__(
        self, recipe: Recipe, pool: Pool, out: Path, device: torch.device, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.recipe, self.out, self.device, self.seed = recipe, out, device, seed
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
        """Weights in bfloat16 in the hub's layout, and a checkpoint to resume from."""
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

    def resume(self) -> None:
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        if self.judge:
            self.judge.load_state_dict(state["judge"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def run(self, minutes: float = math.inf) -> None:
        """Train to the end of the curriculum, with a line of figures every 100 steps.

        After ``minutes`` it stops with a checkpoint; a resumed run goes on as if it had not.
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
        """The rest of a phase that begins at step ``begin`` of ``total``, and its evaluation."""
        started, tokens_done, end = time.perf_counter(), 0, begin + phase.steps
        for batch in self._batches(phase, range(self.step, end)):
            made = self._update(batch, total)
            tokens_done += batch.tokens.numel()
            if self.step % 100 == 0 or self.step == end:
                elapsed = time.perf_counter() - started
                self._log(
                    phase,
                    loss=round(float(made.loss), 5),
                    **_judged(made.score_error),
                    **figures(batch, made.guess),
                    tokens_per_second=round(tokens_done / elapsed),
                )
            if time.perf_counter() > deadline:
                return
        for length in sorted(set(phase.lengths)):
            self._log(phase, held_out_at=length, **self.evaluate(length))

    def _batches(self, phase: Phase, steps: range) -> Iterator[Batch]:
        mixture = self.recipe.mixture
        task = DigestTask(
            self.pool.training, phase.lengths, phase.tokens, steps, self.seed, mixture
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

    def _update(self, batch: Batch, total: int) -> Predictions:
        recipe = self.recipe
        progress = self.step / total
        shape = recipe.floor + (1 - recipe.floor) * 0.5 * (1 + math.cos(math.pi * progress))
        rate = recipe.learning_rate * min(1.0, (self.step + 1) / recipe.warmup) * shape
        with torch.autocast(self.device.type, torch.bfloat16):
            made = predict(self.model, batch, self.judge)
        loss = made.loss if made.score_error is None else made.loss + JUDGED * made.score_error
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return Predictions(made.loss.detach(), made.guess, made.score_error)

    @torch.no_grad()
    def evaluate(self, length: int) -> dict[str, dict[str, float]]:
        """Figures on held-out paragraphs, by sort of document, and for the control task."""
        found = {}
        for name, mixture in EVALUATED.items():
            task = DigestTask(
                self.pool.evaluation, (length,), 8 * length, range(1), self.seed + 1, mixture
            )
            batch = task[0].to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16):
                found[name] = figures(batch, predict(self.model, batch).guess)
        return found

    def _log(self, phase: Phase, **figures: object) -> None:
        line = json.dumps({"step": self.step, "longest": max(phase.lengths), **figures})
        print(line, flush=True)
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / "curve.jsonl").open("a") as curve:
            curve.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=RECIPES)
    parser.add_argument("--pool", type=Path, required=True, help="tokenized corpus (.npz)")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, to resume")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    arguments = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
    recipe = RECIPES[arguments.role](tokenizer).shortened(arguments.share)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(recipe, Pool.load(arguments.pool), arguments.out, device, arguments.seed)
    if arguments.resume and trainer.checkpoint.exists():
        trainer.resume()
    print(
        json.dumps(
            {
                "parameters": trainer.model.num_parameters(),
                "phases": [asdict(p) for p in recipe.phases],
            }
        )
    )
    trainer.run(arguments.minutes)


if __name__ == "__main__":
    main()
