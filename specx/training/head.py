"""Train an EAGLE-3 head, for the embedded target or for another target that has written texts.

``python -m specx.training.head --out DIR`` teaches a head to continue generated reports and
invented documents of at most 1,024 tokens as the embedded target does, on a CPU or a GPU;
``--minutes`` and ``--resume`` divide a run. ``--target MODEL --outputs DIR`` trains a head for
another target, on its outputs (``outputs.py``).

When drafting several tokens, a head reads its own states, so it is also trained on them. A document
is read in ``STEPS`` steps, each on the head's states of the step before (EAGLE-3's "training-time
test").
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from specx.models.seam import NAME
from specx.training.eagle import (
    Head,
    MtpHead,
    UnrolledCall,
    head_for,
    make_head,
    make_mtp,
    write_head,
    write_mtp,
)
from specx.training.outputs import NONE, TargetOutputs, load_target
from specx.training.pool import Pool, generated_pool
from specx.training.task import Batch, DigestDataset, Mixture
from specx.training.team import Team

EMBEDDED = Path(__file__).parents[1] / "models" / "embedded"
LENGTHS = (512, 1024)  # tokens of a document
TOKENS = 4096  # per step
STEPS = 6  # drafted tokens
FADE = 0.9  # factor on the loss from one step of the draft to the next
REPORTS = range(1_000_000, 1_003_000)  # seeds; none is used to measure anything
CHARACTERS = 6000  # of a report
BEHIND = 256  # tokens of a prompt that are learned, too, as these are many and outputs short
PROMPTS = 0.3  # weight of their loss
SAVED_EVERY = 100  # seconds
MIXTURE = Mixture(
    {"real": 0.4, "names": 0.15, "random": 0.1, "alphabet": 0.1, "phrases": 0.1, "variants": 0.15},
    control=0.1,
)


@dataclass
class TeacherReading:
    """The target's results for documents: tokens [B, L], features [B, L, F], logits [B, rows, V].

    ``first``: the first row of the digests, where logits begin. ``weights`` [B, rows]: the weights
    of the rows' losses.
    """

    tokens: Tensor
    features: Tensor
    logits: Tensor
    first: int
    weights: Tensor


@torch.no_grad()
def read_documents(
    target: PreTrainedModel, head: Head, ids: Tensor, first: int, weights: Tensor | None = None
) -> TeacherReading:
    """Let the target read documents int64 [B, L].

    ``weights`` [B, L - first]: of the tokens from ``first`` on; None: all 1.
    """
    output = cast("Any", target).model(ids, use_cache=False, output_hidden_states=True)
    features = torch.cat([output.hidden_states[layer] for layer in head.features], -1)
    lm_head = target.get_output_embeddings().weight
    chosen = lm_head if len(head.ids) == len(lm_head) else lm_head[head.ids]
    logits = nn.functional.linear(output.last_hidden_state[:, first:], chosen)
    weights = torch.ones(logits.shape[:2], device=ids.device) if weights is None else weights
    return TeacherReading(ids, features, logits, first, weights)


def read(target: PreTrainedModel, head: Head, batch: Batch) -> Iterator[TeacherReading]:
    """Let the target read each document of a batch, without its padding."""
    for ids, first in batch.without_padding():
        yield read_documents(target, head, ids, first)


def unroll(head: Head, reading: TeacherReading) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Draft ``STEPS`` tokens after every token of the digests.

    Yields for each step the head's logits [B · R, V], the target's at the same places, and their
    weights.
    """
    call, last = UnrolledCall(), reading.tokens.shape[1] - 2  # the last row has a goal
    positions = torch.arange(last, device=reading.tokens.device)[None]
    states, start, first = head.states(reading.features[:, :last]), 0, reading.first - 1
    for step in range(STEPS):
        begin = first + step
        if begin >= last:
            return
        call.starts.append(start)
        rows = torch.arange(begin - start, last - start, device=states.device)
        tokens = reading.tokens[:, start + 1 : last + 1]
        out, logits = head(tokens, states, positions[:, start:], rows, call)
        goals = slice(begin + 1 - reading.first, last + 1 - reading.first)
        theirs, weights = reading.logits[:, goals], reading.weights[:, goals]
        yield logits.flatten(0, 1), theirs.flatten(0, 1), weights.flatten()
        # Row i + 1 goes on from the output of row i.
        states, start = out[:, :-1], begin + 1


@dataclass(frozen=True)
class DigestLessons:
    """Digests of generated and invented documents, as the embedded target continues them.

    ``batches`` yields this process's readings for each step of a run; ``held_out`` yields readings
    of texts that no step uses.
    """

    target: PreTrainedModel
    head: Head
    pool: Pool
    team: Team

    def batches(self, steps: range) -> Iterator[list[TeacherReading]]:
        pool, team = self.pool.training, self.team
        documents = DigestDataset(pool, LENGTHS, TOKENS, steps, 0, MIXTURE, team=team)
        for index in range(len(documents)):
            yield list(read(self.target, self.head, documents[index].to(self.target.device)))

    def held_out(self) -> Iterator[TeacherReading]:
        documents = DigestDataset(self.pool.evaluation, LENGTHS, 8192, range(1), 0, MIXTURE)
        yield from read(self.target, self.head, documents[0].to(self.target.device))


@dataclass(frozen=True)
class OutputLessons:
    """Texts that a target has written after prompts, each with the length of its prompt."""

    target: PreTrainedModel
    head: Head
    outputs: TargetOutputs
    team: Team

    def batches(self, steps: range) -> Iterator[list[TeacherReading]]:
        for drawn in self.outputs.drawn(steps, self.team):
            yield [self._read(*drawn)]

    def held_out(self) -> Iterator[TeacherReading]:
        for length in self.outputs.written:
            yield self._read(length, self.outputs.held_out(length))

    def _read(self, prompt: int, tokens: Tensor) -> TeacherReading:
        """Read prompts of ``prompt`` tokens with outputs: int64 [B, L], padded with NONE."""
        tokens, first = tokens.to(self.target.device), max(1, prompt - BEHIND)
        known = torch.zeros(self.head.config.vocab_size, device=tokens.device)
        known[self.head.ids] = 1
        ids = tokens.clamp(min=0)
        weights = known[ids] * (tokens != NONE)
        weights[:, :prompt] *= PROMPTS
        # A row's goal is the token behind it; behind the last there is none.
        weights = nn.functional.pad(weights[:, first + 1 :], (0, 1))
        return read_documents(self.target, self.head, ids, first, weights)


Lessons = DigestLessons | OutputLessons


class HeadTrainer:
    """One run: the head, its optimizer, and the number of steps done of ``total``."""

    def __init__(
        self, out: Path, head: Head, lessons: Lessons, total: int, rate: float, team: Team
    ) -> None:
        self.out, self.head, self.lessons, self.total, self.rate = out, head, lessons, total, rate
        self.team, self.device = team, head.fc.weight.device
        self.head.config._attn_implementation = NAME
        self.trained = [each for each in self.head.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=rate, weight_decay=0.0, betas=(0.9, 0.95)
        )
        self.step = 0

    def run(self, minutes: float) -> None:
        """Train until the last step or for ``minutes``; save from time to time."""
        began = saved = time.perf_counter()
        for readings in self.lessons.batches(range(self.step, self.total)):
            now = time.perf_counter()
            over = self.team.largest((now - began) / (60 * minutes), self.device)
            if over >= 1:
                break
            loss, right = self._update(readings, max(over, self.step / self.total))
            if self.step % 20 == 0:
                self._log(loss=round(float(loss), 4), right=_means(right))
            if now - saved > SAVED_EVERY:
                self.save()
                saved = now
        self._log(held_out=self.evaluate())
        self.save()

    def _update(
        self, readings: list[TeacherReading], over: float
    ) -> tuple[Tensor, list[list[Tensor]]]:
        """Take one optimizer step; ``over``: the completed fraction of the run.

        Return the loss and the accuracies of each reading, still on the GPU: waiting for them takes
        time.
        """
        total, right = torch.zeros((), device=self.device), []
        for reading in readings:
            with self._autocast():
                loss, accuracies = torch.zeros((), device=self.device), []
                for step, (ours, theirs, weights) in enumerate(unroll(self.head, reading)):
                    goal = theirs.float().softmax(-1)
                    errors = nn.functional.cross_entropy(ours, goal, reduction="none")
                    loss = loss + FADE**step * (errors * weights).sum() / weights.sum().clamp(1e-9)
                    accuracies.append(_right(ours, theirs, weights))
            (loss / len(readings)).backward()
            total += loss.detach() / len(readings)
            right.append(accuracies)
        self.team.average_gradients(self.trained)
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        shape = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * over))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * shape * min(1.0, (self.step + 1) / 50)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total, right

    def _autocast(self) -> torch.autocast:
        half = self.head.embed_tokens.weight.dtype == torch.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16, enabled=half)

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """Return the accuracy on held-out texts, for each step of a draft."""
        right = []
        for reading in self.lessons.held_out():
            with self._autocast():
                right.append([_right(*each) for each in unroll(self.head, reading)])
        return _means(right)

    def save(self) -> None:
        """Write a checkpoint to resume from, and the head in SafeAILab's layout, in bfloat16."""
        if not self.team.is_leader:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            "head": self.head.trained(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, self.out / "checkpoint.pt")
        if isinstance(self.head, MtpHead):
            write_mtp(self.head, EMBEDDED / "target", self.out / "model")
        else:
            write_head(self.head, self.out / "model")

    def resume(self) -> None:
        state = torch.load(self.out / "checkpoint.pt", weights_only=True, map_location=self.device)
        self.head.load_state_dict(state["head"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def _log(self, **measured: object) -> None:
        self.team.log(self.out, step=self.step, **measured)


def _right(ours: Tensor, theirs: Tensor, weights: Tensor) -> Tensor:
    """Return how many tokens with a full weight the head predicts as the target does."""
    counted = weights == 1
    right = (ours.argmax(-1) == theirs.argmax(-1)) & counted
    return right.sum() / counted.sum().clamp(1)


def _means(rows: list[list[Tensor]]) -> list[float]:
    columns = [[float(row[i]) for row in rows if len(row) > i] for i in range(STEPS)]
    return [round(sum(column) / max(1, len(column)), 4) for column in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pool", type=Path, help="a tokenized corpus (.npz), or reports")
    parser.add_argument("--target", type=Path, help="another target, a folder or a GGUF file")
    parser.add_argument("--outputs", type=Path, help="what it has written (outputs.py)")
    parser.add_argument("--ids", type=int, default=32_768, help="that a head for it proposes")
    parser.add_argument("--mtp", action="store_true", help="for multi-token prediction instead")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    arguments = parser.parse_args()
    team = Team.join()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)  # the same head everywhere in the team
    lessons: Lessons
    head: Head
    if arguments.target:
        outputs, target = (
            TargetOutputs.load(arguments.outputs),
            load_target(arguments.target, device),
        )
        head = head_for(target, outputs.frequent(arguments.ids).to(device)).to(device)
        lessons = OutputLessons(target, head, outputs, team)
    else:
        tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
        made = None if arguments.pool else generated_pool(tokenizer, REPORTS, CHARACTERS)
        pool = made or Pool.load(arguments.pool)
        target = load_target(EMBEDDED / "target", device)
        if arguments.mtp:
            first = DigestDataset(pool.training, LENGTHS, TOKENS, range(4), 0, MIXTURE)
            batches = (first[step] for step in range(len(first)))
            texts = [ids.to(device) for batch in batches for ids, _ in batch.without_padding()]
            head = make_mtp(target, texts).to(device)
        else:
            head = make_head(target).to(device)
        lessons = DigestLessons(target, head, pool, team)
    trainer = HeadTrainer(arguments.out, head, lessons, arguments.steps, arguments.rate, team)
    if arguments.resume:
        trainer.resume()
    trainer.run(arguments.minutes)
    team.leave()


if __name__ == "__main__":
    main()
