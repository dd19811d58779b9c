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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specx.training.task import SORTS, WEIGHT_COPY, DigestTask, Pool

HELD_OUT = 0.03  # share of the paragraphs, the last ones, that only evaluation sees


@dataclass(frozen=True)
class Phase:
    """``steps`` optimizer steps on batches of ``tokens`` tokens; each has one of ``lengths``."""

    lengths: tuple[int, ...]
    steps: int
    tokens: int = 65536


@dataclass(frozen=True)
class Recipe:
    """A model and its curriculum."""

    config: LlamaConfig
    phases: tuple[Phase, ...]
    learning_rate: float = 2e-3
    warmup: int = 200
    floor: float = 0.03  # of the learning rate, reached at the last step

    def shortened(self, share: float) -> "Recipe":
        """The same curriculum with a share of the steps, at least one a phase."""
        phases = tuple(replace(p, steps=max(1, round(p.steps * share))) for p in self.phases)
        return replace(self, phases=phases, warmup=max(1, round(self.warmup * share)))


def _llama(tokenizer: PreTrainedTokenizerFast, theta: float, **shape: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        head_dim=32,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )


def target_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """6.6 M parameters, documents of 256 to 24K tokens."""
    config = _llama(
        tokenizer,
        theta=1e6,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        intermediate_size=768,
        max_position_embeddings=24576,
    )
    short, middle = (512, 1024, 2048), (512, 1024, 2048, 4096, 8192)
    phases = (
        Phase((512,), 600),
        Phase((512, 1024), 2000),
        Phase((*short, 4096), 1200),
        Phase(middle, 1500),
        Phase((*middle, 8192, 16384, 16384, 24576, 24576), 1800),
    )
    return Recipe(config, phases)


def draft_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """1.7 M parameters, never more than 1,024 tokens: the draft knows nothing of long input."""
    config = _llama(
        tokenizer,
        theta=1e4,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        max_position_embeddings=1024,
    )
    return Recipe(config, (Phase((512,), 2500), Phase((512, 1024, 1024), 2500)))


def target_long_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """The second stage of the target (``--start``): mostly long documents."""
    lengths = (512, 1024, 2048, 4096, 8192, 8192, 16384, 16384, 24576, 24576)
    first = target_recipe(tokenizer)
    return replace(first, phases=(Phase(lengths, 3000), Phase(lengths, 2700)), learning_rate=1e-3)


RECIPES = {
    "target": target_recipe,
    "target-long": target_long_recipe,
    "draft": draft_recipe,
}


def weighted_loss(model: nn.Module, tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, share of copied tokens predicted right); tokens, weights [B, L]."""
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    goal, weights = tokens[:, 1:], weights[:, 1:]
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), goal.flatten(), reduction="none"
    )
    copied = (weights == WEIGHT_COPY).float()
    right = ((logits.argmax(-1) == goal) * copied).sum() / copied.sum().clamp(min=1)
    return (losses * weights.flatten()).sum() / weights.sum(), right


class Trainer:
    """One run of a recipe: model, optimizer, position in the curriculum."""

    def __init__(
        self, recipe: Recipe, pool: Pool, out: Path, device: torch.device, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.recipe, self.out, self.device, self.seed = recipe, out, device, seed
        cut = int(len(pool) * (1 - HELD_OUT))
        self.pool = replace(pool, starts=pool.starts[: cut + 1], leads=pool.leads[:cut])
        self.held_out = replace(pool, starts=pool.starts[cut:], leads=pool.leads[cut:])
        self.model = LlamaForCausalLM(recipe.config).to(device)
        self.model.set_attn_implementation("sdpa")
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        kept = [p for p in self.model.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.05}, {"params": kept, "weight_decay": 0.0}],
            lr=recipe.learning_rate,
            betas=(0.9, 0.98),
        )
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
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, self.checkpoint)
        small = LlamaForCausalLM(self.recipe.config)
        small.load_state_dict({k: v.float().cpu() for k, v in self.model.state_dict().items()})
        small.to(torch.bfloat16).save_pretrained(self.out / "model")

    def start_from(self, folder: Path) -> None:
        """Begin with the weights of an earlier stage."""
        weights = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        self.model.load_state_dict(weights)

    def resume(self) -> None:
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def run(self) -> None:
        """Train to the end of the curriculum, with a line of figures every 100 steps."""
        total = sum(phase.steps for phase in self.recipe.phases)
        begin = 0
        for phase in self.recipe.phases:
            if self.step < begin + phase.steps:
                self._run_phase(phase, begin, total)
            begin += phase.steps

    def _run_phase(self, phase: Phase, begin: int, total: int) -> None:
        """The rest of a phase that begins at step ``begin`` of ``total``; evaluate and save."""
        started, tokens_done, end = time.perf_counter(), 0, begin + phase.steps
        for tokens, weights in self._batches(phase, self.step - begin):
            loss, right = self._update(tokens, weights, total)
            tokens_done += tokens.numel()
            if self.step % 100 == 0 or self.step == end:
                elapsed = time.perf_counter() - started
                self._log(
                    phase,
                    loss=float(loss),
                    copied_right=float(right),
                    tokens_per_second=round(tokens_done / elapsed),
                )
        for length in sorted(set(phase.lengths)):
            self._log(phase, held_out_at=length, copied_right=self.evaluate(length))
        self.save()

    def _batches(self, phase: Phase, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        task = DigestTask(self.pool, phase.lengths, phase.tokens, phase.steps, self.seed)
        cuda = self.device.type == "cuda"
        rest = torch.utils.data.Subset(task, range(done, phase.steps))
        loader = DataLoader(
            rest,
            batch_size=None,
            num_workers=14 if cuda else 0,
            prefetch_factor=4 if cuda else None,
        )
        for tokens, weights in loader:
            yield tokens.to(self.device), weights.to(self.device)

    def _update(self, tokens: Tensor, weights: Tensor, total: int) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        progress = self.step / total
        shape = recipe.floor + (1 - recipe.floor) * 0.5 * (1 + math.cos(math.pi * progress))
        rate = recipe.learning_rate * min(1.0, (self.step + 1) / recipe.warmup) * shape
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(self.device.type, torch.bfloat16):
            loss, right = weighted_loss(self.model, tokens, weights)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach(), right.detach()

    @torch.no_grad()
    def evaluate(self, length: int) -> dict[str, float]:
        """Copied tokens predicted right on held-out paragraphs, by sort of document."""
        figures = {}
        for index, name in enumerate(SORTS):
            mixture = tuple(float(i == index) for i in range(len(SORTS)))
            task = DigestTask(self.held_out, (length,), 4 * length, steps=1, seed=self.seed + 1)
            task.mixture = mixture
            tokens, weights = (part.to(self.device) for part in task[0])
            with torch.autocast(self.device.type, torch.bfloat16):
                figures[name] = round(float(weighted_loss(self.model, tokens, weights)[1]), 4)
        return figures

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
    parser.add_argument("--start", type=Path, help="begin with the weights of this model folder")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
    recipe = RECIPES[arguments.role](tokenizer).shortened(arguments.share)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(recipe, Pool.load(arguments.pool), arguments.out, device, arguments.seed)
    if arguments.start:
        trainer.start_from(arguments.start)
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
    trainer.run()


if __name__ == "__main__":
    main()
