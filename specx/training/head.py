"""Train an EAGLE-3 head, for the embedded target or for one that has written texts.

``python -m specx.training.head --out DIR`` teaches a head to continue generated reports and
invented documents of at most 1,024 tokens as the embedded target does, on a CPU or a GPU;
``--minutes`` and ``--resume`` divide a run. ``--target MODEL --outputs DIR`` teaches one for
another target, on what it has written (``outputs.py``).

When drafting several tokens, a head reads its own states, so it is also trained on them: a document
is read in ``STEPS`` steps, each on the head's states of the step before (EAGLE-3's "training-time
test").
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from specx.models.seam import NAME
from specx.training.outputs import NONE, Outputs, load_target
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
LAYERS = (2, 5, 6)  # layers of the target whose input the head reads; layer 5 finds what is copied
POINTER = 5
BEHIND = 256  # tokens of a prompt that are learned, too, as these are many and outputs short
PROMPTS = 0.3  # weight of their loss
SAVED_EVERY = 100  # seconds
MIXTURE = Mixture(
    {"real": 0.4, "names": 0.15, "random": 0.1, "alphabet": 0.1, "phrases": 0.1, "variants": 0.15},
    control=0.1,
)


class Head(nn.Module):
    """An EAGLE-3 head of one layer, whose parameters have the names of speculators' files.

    Row t reads the embedding of token t + 1 and a state of position t: the target's features
    (``fc``) or the head's own output. ``ids`` int64 [V]: the target's ids that it proposes, in
    order. ``features``: the layers whose input it reads.
    """

    def __init__(
        self, target: LlamaConfig, embed_tokens: nn.Module, ids: Tensor, features: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.ids, self.features = ids, features
        self.config = config = LlamaConfig(
            vocab_size=target.vocab_size,
            hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_hidden_layers=1,
            num_attention_heads=target.num_attention_heads,
            num_key_value_heads=target.num_attention_heads,
            head_dim=head_dim(target),
            rms_norm_eps=target.rms_norm_eps,
            rope_parameters=target.rope_parameters,
            max_position_embeddings=target.max_position_embeddings,
            tie_word_embeddings=False,
        )
        hidden, layer = config.hidden_size, LlamaDecoderLayer(config, 0)
        layer.hidden_norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(layer.self_attn, name).out_features
            setattr(layer.self_attn, name, nn.Linear(2 * hidden, rows, bias=False))
        self.embed_tokens = embed_tokens
        self.layers = nn.ModuleList([layer])
        self.fc = nn.Linear(len(features) * hidden, hidden, bias=False)
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, len(ids), bias=False)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def forward(
        self, tokens: Tensor, states: Tensor, positions: Tensor, rows: Tensor, call: "UnrolledCall"
    ) -> tuple[Tensor, Tensor]:
        """Read tokens int64 [B, T], states [B, T, H] and positions int64 [1, T].

        Return states [B, R, H] and logits [B, R, V] of ``rows`` int64 [R].
        """
        layer: Any = self.layers[0]
        embedded = self.embed_tokens(tokens)
        x, _ = layer.self_attn(
            hidden_states=torch.cat(
                [layer.input_layernorm(embedded), layer.hidden_norm(states)], dim=-1
            ),
            attention_mask=None,
            position_embeddings=self.rotary_emb(embedded, positions),
            specx_call=call,
        )
        x = (states + x)[:, rows]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x, self.lm_head(self.norm(x))

    def trained(self) -> dict[str, Tensor]:
        """Return its weights by name, except for the target's embeddings."""
        return {k: v for k, v in self.state_dict().items() if not k.startswith("embed_tokens.")}


def head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", 0) or config.hidden_size // config.num_attention_heads)


def head_for(target: PreTrainedModel, ids: Tensor) -> Head:
    """Make a head that begins with the target's own last steps: its last MLP, norm and lm head."""
    count = target.config.num_hidden_layers
    features = (2, count // 2, count - 3)
    head = Head(target.config, target.get_input_embeddings(), ids, features)
    last, first = cast("Any", target).model.layers[-1], cast("Any", head.layers[0])
    with torch.no_grad():
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[ids])
        head.norm.weight.copy_(cast("Any", target).model.norm.weight)
        first.mlp.load_state_dict(last.mlp.state_dict())
        first.post_attention_layernorm.load_state_dict(last.post_attention_layernorm.state_dict())
        head.fc.weight.mul_(0.1)
        hidden = head.fc.out_features
        head.fc.weight[:, -hidden:] += torch.eye(hidden)
    return head


def make_head(target: PreTrainedModel) -> Head:
    """Make a head for the embedded target with initial weights from it.

    The target's layer ``POINTER`` attends from a token to the position of the token to be copied
    next. Row t of the head has token t + 1, so the same queries and keys find the token after that.
    The values carry its embedding, a quarter in each head.
    """
    config = target.config
    head = Head(config, target.get_input_embeddings(), torch.arange(config.vocab_size), LAYERS)
    hidden, dim = config.hidden_size, config.head_dim
    layers: Any = target.model.layers
    pointer, first = layers[POINTER], cast("Any", head.layers[0])
    with torch.no_grad():
        head.lm_head.weight.copy_(target.lm_head.weight)
        head.norm.weight.fill_(0.3)
        place = LAYERS.index(POINTER) * hidden
        head.fc.weight[:, place : place + hidden] += torch.eye(hidden, device=head.fc.weight.device)
        head.fc.weight.mul_(0.1)  # the state is normed for attention; what is found outweighs it
        first.hidden_norm.weight.copy_(pointer.input_layernorm.weight)
        for index in range(config.num_attention_heads):
            rows, query = slice(index * dim, (index + 1) * dim), (index % 2) * dim
            queries = pointer.self_attn.q_proj.weight[query : query + dim]
            keys = pointer.self_attn.k_proj.weight[:dim]
            for name, weight in (("q_proj", queries), ("k_proj", keys)):
                mine = getattr(first.self_attn, name).weight
                mine[rows, :hidden].mul_(0.1)
                mine[rows, hidden:] = weight
        nn.init.eye_(first.self_attn.v_proj.weight[:, :hidden])
        first.self_attn.v_proj.weight[:, hidden:].mul_(0.1)
        nn.init.eye_(first.self_attn.o_proj.weight)
        first.mlp.down_proj.weight.mul_(0.1)
    return head


@dataclass
class UnrolledCall:
    """Attention of several drafting steps.

    In step j a row sees the rows of step 0 up to j places before it, and its ancestors: one row of
    each later step. ``keys``, ``values`` [B, H, T, D] of each step; those of step j begin at row
    ``starts[j]``.
    """

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, **_: Any
    ) -> Tensor:
        """Attend from query [B, H, T, D]; key, value [B, H, T, D], new -> [B, T, H, D]."""
        assert layer == 0
        self.keys.append(key)
        self.values.append(value)
        q, step, start = query * scaling, len(self.keys) - 1, self.starts[-1]
        rows = start + torch.arange(q.shape[2], device=q.device)
        places = torch.arange(self.keys[0].shape[2], device=q.device)
        scores = q @ self.keys[0].transpose(2, 3)
        scores = scores.masked_fill(places > rows[:, None] - step, -torch.inf)
        ancestors = [self._ancestors(self.keys, j, rows - step + j) for j in range(1, step + 1)]
        own = [(q * keys).sum(-1, keepdim=True) for keys in ancestors]
        weights = torch.cat([scores, *own], -1).softmax(-1).to(value.dtype)
        out = weights[..., : len(places)] @ self.values[0]
        for j in range(1, step + 1):
            values = self._ancestors(self.values, j, rows - step + j)
            out = out + weights[..., len(places) + j - 1, None] * values
        return out.transpose(1, 2)

    def _ancestors(self, parts: list[Tensor], step: int, rows: Tensor) -> Tensor:
        return parts[step].index_select(2, rows - self.starts[step])


@dataclass
class TeacherReading:
    """The target's reading of documents: tokens [B, L], features [B, L, F], logits [B, rows, V].

    Logits begin at row ``first``, the first of the digests. ``weights`` [B, rows]: of their losses.
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
    """Let the target read documents int64 [B, L]; ``weights`` [B, L - first], by default 1."""
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

    Yields for each step the head's logits [B R, V], the target's at the same places, and their
    weights.
    """
    call, last = UnrolledCall(), reading.tokens.shape[1] - 2  # the last row has a goal
    positions = torch.arange(last, device=reading.tokens.device)[None]
    states, start, first = head.fc(reading.features[:, :last]), 0, reading.first - 1
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


class Lessons(Protocol):
    """What a head is taught on."""

    def batches(self, steps: range) -> Iterator[list[TeacherReading]]:
        """Yield the readings of each step of a run, this process's part of them."""

    def held_out(self) -> Iterator[TeacherReading]:
        """Yield readings of texts that no step has."""


@dataclass(frozen=True)
class DigestLessons:
    """Digests of generated and invented documents, which the embedded target knows how to go on."""

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
    """What a target has written behind prompts, and the ends of these prompts."""

    target: PreTrainedModel
    head: Head
    outputs: Outputs
    team: Team

    def batches(self, steps: range) -> Iterator[list[TeacherReading]]:
        for drawn in self.outputs.drawn(steps, self.team):
            yield [self._read(*drawn)]

    def held_out(self) -> Iterator[TeacherReading]:
        for length in self.outputs.written:
            yield self._read(length, self.outputs.held_out(length))

    def _read(self, prompt: int, tokens: Tensor) -> TeacherReading:
        """Read prompts of ``prompt`` tokens with outputs, int64 [B, L], NONE behind their ends."""
        tokens, first = tokens.to(self.target.device), max(1, prompt - BEHIND)
        known = torch.zeros(self.head.config.vocab_size, device=tokens.device)
        known[self.head.ids] = 1
        ids = tokens.clamp(min=0)
        weights = known[ids] * (tokens != NONE)
        weights[:, :prompt] *= PROMPTS
        # A row's goal is the token behind it; behind the last there is none.
        weights = nn.functional.pad(weights[:, first + 1 :], (0, 1))
        return read_documents(self.target, self.head, ids, first, weights)


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
        """Train until the last step or for ``minutes``; save now and then."""
        began = saved = time.perf_counter()
        for readings in self.lessons.batches(range(self.step, self.total)):
            now = time.perf_counter()
            over = self.team.largest((now - began) / (60 * minutes), self.device)
            if over >= 1:
                break
            loss, right = self._update(readings, max(over, self.step / self.total))
            if self.step % 20 == 0:
                self._log(loss=loss, right=right)
            if now - saved > SAVED_EVERY:
                self.save()
                saved = now
        self._log(held_out=self.evaluate())
        self.save()

    def _update(self, readings: list[TeacherReading], over: float) -> tuple[float, list[float]]:
        """Take one optimizer step; ``over``: the share of the run that is over."""
        total, right = 0.0, []
        for reading in readings:
            with self._autocast():
                loss, accuracies = torch.zeros((), device=self.device), []
                for step, (ours, theirs, weights) in enumerate(unroll(self.head, reading)):
                    goal = theirs.float().softmax(-1)
                    errors = nn.functional.cross_entropy(ours, goal, reduction="none")
                    loss = loss + FADE**step * (errors * weights).sum() / weights.sum().clamp(1e-9)
                    accuracies.append(_right(ours, theirs, weights))
            (loss / len(readings)).backward()
            total += float(loss.detach()) / len(readings)
            right.append(accuracies)
        self.team.average_gradients(self.trained)
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        shape = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * over))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * shape * min(1.0, (self.step + 1) / 50)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return round(total, 4), _means(right)

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
        write_head(self.head, self.out / "model")

    def resume(self) -> None:
        state = torch.load(self.out / "checkpoint.pt", weights_only=True, map_location=self.device)
        self.head.load_state_dict(state["head"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def _log(self, **measured: object) -> None:
        self.team.log(self.out, step=self.step, **measured)


def write_head(head: Head, folder: Path) -> None:
    """Write a head in SpecForge's layout, in bfloat16, with layer ids counted by outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {k.replace("layers.0.", "midlayer."): v for k, v in head.trained().items()}
    weights = {name: weight.bfloat16().cpu() for name, weight in named.items()}
    ids, rows = head.ids.cpu(), len(head.ids)
    weights["d2t"] = ids - torch.arange(rows)
    weights["t2d"] = torch.zeros(head.config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    layers = [entering - 1 for entering in head.features]
    config = {
        **head.config.to_diff_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": rows,
        "torch_dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers, "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _right(ours: Tensor, theirs: Tensor, weights: Tensor) -> float:
    """Return how many of the head's choices are the target's, of those with a full weight."""
    counted = weights == 1
    right = (ours.argmax(-1) == theirs.argmax(-1)) & counted
    return float(right.sum() / counted.sum().clamp(1))


def _means(rows: list[list[float]]) -> list[float]:
    columns = [[row[i] for row in rows if len(row) > i] for i in range(STEPS)]
    return [round(sum(column) / max(1, len(column)), 4) for column in columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pool", type=Path, help="a tokenized corpus (.npz), or reports")
    parser.add_argument("--target", type=Path, help="another target, a folder or a GGUF file")
    parser.add_argument("--outputs", type=Path, help="what it has written (outputs.py)")
    parser.add_argument("--ids", type=int, default=32_768, help="that a head for it proposes")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    arguments = parser.parse_args()
    team = Team.join()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)  # the same head everywhere in the team
    lessons: Lessons
    if arguments.target:
        outputs, target = Outputs.load(arguments.outputs), load_target(arguments.target, device)
        head = head_for(target, outputs.frequent(arguments.ids).to(device)).to(device)
        lessons = OutputLessons(target, head, outputs, team)
    else:
        tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "target")
        made = None if arguments.pool else generated_pool(tokenizer, REPORTS, CHARACTERS)
        target = load_target(EMBEDDED / "target", device)
        head = make_head(target).to(device)
        lessons = DigestLessons(target, head, made or Pool.load(arguments.pool), team)
    trainer = HeadTrainer(arguments.out, head, lessons, arguments.steps, arguments.rate, team)
    if arguments.resume:
        trainer.resume()
    trainer.run(arguments.minutes)
    team.leave()


if __name__ == "__main__":
    main()
