"""Which layer should choose what the draft remembers, and how its heads should be put together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean

import torch
from torch import Tensor

from specx.bench.cases import Case
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by
from specx.bench.lengths import label
from specx.bench.methods import BenchMethod, Engine
from specx.bench.report.findings import Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.sources import RUN, sources
from specx.bench.watching import Look, Watcher
from specx.bench.workbench import Workbench
from specx.engine.decode import read_beginning
from specx.engine.methods import with_layer
from specx.errors import UsageError
from specx.kernels.chunks import Grid, best_chunks, count_chunks
from specx.prompts.control import first_text_id, substitute

COLUMNS = (
    "layer",
    "input",
    "tokens copied",
    "recall, mean over heads",
    "recall, max over heads",
    "recall, best head",
    "best head",
    "recall by chance",
    "acceptance length",
)
DEFINED = (
    "Layers and heads are counted from 0. A token of the output counts as copied where it is in a "
    f"run of {RUN} tokens that the prompt has exactly once; recall is the share of copied tokens "
    "whose chunk of the prompt was among those that the draft remembers, chosen by what the "
    "target's last token attended to when the draft had to guess (the token two before: the one "
    "between has not been read by the target yet). The acceptance length was measured by decoding "
    "with each layer, mean over heads. The best head is chosen on the very tokens that it is "
    "measured on, so its recall is what a head can reach, not what to expect of it."
)


def measure(bench: Workbench) -> Iterator[Run]:
    if bench.profile.draft is None or bench.profile.draft_cache.policy != "cross-model":
        raise UsageError(
            f"profile {bench.profile.name} does not retrieve by attention (a draft, and "
            "draft_cache.policy: cross-model), so its layers cannot be compared"
        )
    bench = replace(bench, repeats=1)  # neither recall nor acceptance differs between repetitions
    methods = layer_methods(bench.pair.target.num_layers)
    for task in bench.tasks:
        for length in bench.lengths:
            for case in bench.cases(length, task):
                runs = list(bench.alternate([case], methods))
                yield from _with_recall(bench, case, runs)


def layer_methods(layers: int) -> list[BenchMethod]:
    """SpecExtend retrieving by each layer."""
    return [
        Engine(
            f"layer {layer}",
            f"specextend, retrieving by layer {layer}",
            "specextend",
            partial(with_layer, layer=layer),
        )
        for layer in range(layers)
    ]


def _with_recall(bench: Workbench, case: Case, runs: Sequence[Run]) -> Iterator[Run]:
    """The runs of a case with the recall of their layers, all at the output of the first."""
    output = runs[0].output
    tokenizer, cache = bench.pair.target.tokenizer, bench.profile.draft_cache
    # The control task writes in other tokens: what it copied is seen in the document's own.
    said = output if case.task != "control" else _translated(output, first_text_id(tokenizer))
    copied = sources(case.ids, said)
    read = read_beginning(bench.pair, case.ids)
    watcher = Watcher(bench.pair.target, read, (case.ids[-1], *output))
    for layer, run in enumerate(runs):
        bench.listener.phase(f"watching layer {layer}: {case.name}, {label(case.length)} tokens")
        recall = Recall.empty(bench.pair.target.num_heads)
        for look in watcher.looks(layer, cache.chunk):
            source = needed(copied, look)
            if source is not None:
                recall.count(look, source // cache.chunk, cache.top_k)
        chance = cache.top_k / count_chunks(len(case.ids), cache.chunk)
        facts = {"layer": layer, "chance": min(1.0, chance), **vars(recall)}
        yield replace(run, facts=facts)


def needed(copied: Sequence[int | None], look: Look) -> int | None:
    """The place in the prompt that the draft needs when the target last looked so, if there is one.

    Behind the token that looked comes the one that the target chose and has not read yet; what
    the draft has to guess first comes behind that.
    """
    guessed = look.place + 2
    return copied[guessed] if guessed < len(copied) else None


def _translated(output: Sequence[int], first: int) -> list[int]:
    return [substitute(token, first) for token in output]


@dataclass
class Recall:
    """How often the chunk that was needed was among the chosen ones: of ``copied`` tokens, by the
    mean and the maximum over heads, and by each head alone."""

    copied: int
    mean: int
    max: int
    heads: list[int]

    @classmethod
    def empty(cls, heads: int) -> "Recall":
        return cls(0, 0, 0, [0] * heads)

    def count(self, look: Look, chunk: int, top_k: int) -> None:
        self.copied += 1
        self.mean += is_chosen(look.scores.mean(0), chunk, top_k)
        self.max += is_chosen(look.scores.amax(0), chunk, top_k)
        for head, scores in enumerate(look.scores):
            self.heads[head] += is_chosen(scores, chunk, top_k)


def is_chosen(scores: Tensor, chunk: int, top_k: int) -> bool:
    """Whether cross-model retrieval by these scores [chunks] takes the chunk."""
    # Chunks as if they had a token each: their number is all that the choice needs.
    tokens = torch.tensor([len(scores)], device=scores.device)
    return chunk in best_chunks(scores, tokens, Grid(1), top_k).tolist()


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], [DEFINED]
    for task, of_task in by(runs, "task").items():
        rows = [
            _row(own)
            for _, group in sorted(by(of_task, "length").items())
            for own in by(group, "method").values()
        ]
        tables.append(Table(f"Retrieval layer, {task}", COLUMNS, tuple(rows)))
        for length, group in sorted(by(of_task, "length").items()):
            sentences.append(_best(task, length, list(by(group, "method").values())))
        longest = max(run.length for run in of_task)
        figures += _figures(task, [run for run in of_task if run.length == longest])
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def _row(runs: Sequence[Run]) -> tuple[str | float | None, ...]:
    hits = [sum(counts) for counts in zip(*(run.facts["heads"] for run in runs), strict=True)]
    best = max(range(len(hits)), key=lambda head: hits[head])
    copied = sum(run.facts["copied"] for run in runs)
    return (
        runs[0].facts["layer"],
        label(runs[0].length),
        copied,
        recall(runs, "mean"),
        recall(runs, "max"),
        hits[best] / copied if copied else None,
        best if copied else None,
        mean(run.facts["chance"] for run in runs),
        acceptance(runs),
    )


def recall(runs: Sequence[Run], heads: str) -> float | None:
    """Over the copied tokens of all runs; None where nothing was copied."""
    copied = sum(run.facts["copied"] for run in runs)
    return sum(run.facts[heads] for run in runs) / copied if copied else None


def acceptance(runs: Sequence[Run]) -> float:
    return mean(run.acceptance_length for run in runs)


def _best(task: str, length: int, layers: Sequence[Sequence[Run]]) -> str:
    where = f"{task.capitalize()} at {label(length)} tokens"
    best, last = max(layers, key=acceptance), layers[-1]
    sentence = (
        f"{where}: drafts are accepted best with layer {best[0].facts['layer']} (acceptance length "
        f"{acceptance(best):.2f}); with the last one, {last[0].facts['layer']}, it is "
        f"{acceptance(last):.2f}"
    )
    found = {"mean": recall(best, "mean"), "max": recall(best, "max"), "last": recall(last, "mean")}
    if None in found.values():
        return f"{sentence}. Nothing was copied word for word, so there is no recall."
    return (
        f"{sentence}. Its attention finds {found['mean']:.0%} of what is copied by the mean over "
        f"heads and {found['max']:.0%} by the maximum, the last layer's {found['last']:.0%}."
    )


def _figures(task: str, runs: Sequence[Run]) -> list[Figure]:
    layers = by(runs, "method").values()
    numbers = tuple(own[0].facts["layer"] for own in layers)
    where = f"{task}, {label(runs[0].length)} tokens"
    accepted = Figure(
        f"layers-{task}",
        f"Acceptance length by retrieval layer, {where}",
        "layer, from 0",
        "tokens per verification pass",
        (Series("mean over heads", numbers, tuple(acceptance(own) for own in layers)),),
        level=1.0,
    )
    if not any(run.facts["copied"] for run in runs):
        return [accepted]
    lines = tuple(
        Series(f"{heads} over heads", numbers, tuple(recall(own, heads) or 0.0 for own in layers))
        for heads in ("mean", "max")
    )
    title = f"Recall of the chunk being copied, {where}"
    return [accepted, Figure(f"recall-{task}", title, "layer, from 0", "recall", lines)]


EXPERIMENT = Experiment(
    "layers",
    "Retrieval layer and heads",
    "recall and acceptance for every layer of the target and aggregation of heads",
    measure,
    conclude,
)
