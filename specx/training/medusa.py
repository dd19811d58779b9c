"""Train Medusa heads for the embedded target, which share its lm head.

``python -m specx.training.medusa --out DIR --minutes 15`` teaches the heads the target's own
choices on digests of generated and invented documents. One CPU core suffices.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaForCausalLM

from specx.bench.baselines.medusa import FILES, MedusaHeads
from specx.training.pool import Pool, generated_pool
from specx.training.task import DigestDocuments

EMBEDDED = Path(__file__).parents[1] / "models" / "embedded"
REPORTS = range(1_000_000, 1_003_000)  # seeds; none is used to measure anything
CHARACTERS = 6000  # of a report
HEADS, BLOCKS = 4, 3  # 1.6 MB in bfloat16
LENGTH = 512  # tokens of a document
DOCUMENTS = 4  # of a batch
ROWS = 256  # per step
READING = 0.4  # of the time is spent on what the target reads
FADE = 0.8  # weight of a head's loss over that of the one before, as in the paper


class TargetReading(NamedTuple):
    """Digests read by the target: states [R, H], and the tokens to predict int64 [R, HEADS]."""

    states: Tensor
    choices: Tensor


@torch.no_grad()
def read(target: LlamaForCausalLM, documents: Iterable[tuple[Tensor, int]]) -> TargetReading:
    """Let the target read drawn documents; return its reading of their digests."""
    states, choices = [], []
    for ids, first in documents:
        # The last token of the document chooses the first of the digest.
        normed = target.model(ids, use_cache=False).last_hidden_state[0, first - 1 :]
        chosen = target.lm_head(normed).argmax(-1)
        rows = len(chosen) - HEADS
        if rows > 0:
            states.append(normed[:rows])
            choices.append(torch.stack([chosen[k : k + rows] for k in range(1, HEADS + 1)], 1))
    return TargetReading(torch.cat(states), torch.cat(choices))


class MedusaTrainer:
    """One run: first the target reads texts, then the heads are trained on them."""

    def __init__(self, pool: Pool, rate: float, minutes: float) -> None:
        """``minutes``: of processor time, from now on."""
        torch.manual_seed(0)
        self.pool, self.rate, self.seconds = pool, rate, 60 * minutes
        self.began = time.process_time()
        self.target = LlamaForCausalLM.from_pretrained(EMBEDDED / "target", dtype=torch.float32)
        self.target.eval().requires_grad_(False)
        lm_head = self.target.lm_head
        self.heads = MedusaHeads(HEADS, BLOCKS, self.target.config.hidden_size, lm_head)

    def done(self) -> float:
        """Return the elapsed fraction of the time."""
        return (time.process_time() - self.began) / self.seconds

    def read(self, batches: int) -> TargetReading:
        """Let the target read for its share of the time, or a given number of batches."""
        documents = DigestDocuments(self.pool.training, LENGTH)
        found = []
        for index in range(batches):
            found.append(read(self.target, documents.draw(index, DOCUMENTS)))
            if self.done() > READING:
                break
        return TargetReading(*map(torch.cat, zip(*found, strict=True)))

    def learn(self, reading: TargetReading, steps: int) -> None:
        """Train the heads until the time is over, or for a number of steps."""
        # Only tokens that were ever chosen have to be distinguished.
        ids, choices = reading.choices.unique(return_inverse=True)
        rows = self.target.lm_head.weight[ids]
        trained = list(self.heads.parameters())
        optimizer = torch.optim.AdamW(trained, lr=self.rate, weight_decay=0.01)
        start = self.done()
        for step in range(steps):
            left = min(1 - (self.done() - start) / max(1e-6, 1 - start), 1 - step / steps)
            if left <= 0:
                break
            for group in optimizer.param_groups:
                group["lr"] = self.rate * min(1.0, (step + 1) / 10) * (0.02 + 0.98 * left)
            chosen = torch.randint(len(reading.states), (ROWS,))
            loss = torch.zeros(())
            for head, blocks in enumerate(self.heads):
                logits = blocks(reading.states[chosen]) @ rows.T
                error = nn.functional.cross_entropy(logits, choices[chosen, head])
                loss = loss + FADE**head * error
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 200 == 0:
                line = {"step": step, "loss": round(float(loss.detach()), 3)}
                print(json.dumps(line), flush=True)

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """Return how often each head's first choice is the target's token, on held-out texts."""
        documents = DigestDocuments(self.pool.evaluation, LENGTH)
        reading = read(self.target, documents.draw(0, DOCUMENTS))
        right = [
            float((logits.argmax(-1) == reading.choices[:, head]).float().mean())
            for head, logits in enumerate(self.heads(reading.states))
        ]
        return [round(share, 3) for share in right]


def write(heads: MedusaHeads, out: Path) -> None:
    """Write the heads in the public layout, in bfloat16, without an lm head."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: part.detach().bfloat16() for name, part in heads.named_parameters()}
    save_file({name: part.contiguous() for name, part in tensors.items()}, out / FILES[0])
    config = {"medusa_num_heads": HEADS, "medusa_num_layers": BLOCKS, "shares_lm_head": True}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--minutes", type=float, default=15.0, help="of processor time")
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
    pool = generated_pool(tokenizer, REPORTS, CHARACTERS)
    trainer = MedusaTrainer(pool, given.rate, given.minutes)
    reading = trainer.read(given.steps)
    print(json.dumps({"rows": len(reading.states)}), flush=True)
    trainer.learn(reading, given.steps)
    print(json.dumps({"held_out": trainer.evaluate()}), flush=True)
    write(trainer.heads, given.out)


if __name__ == "__main__":
    main()
