"""The layer that chooses what the draft remembers, and how its heads are put together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import torch
from torch import Tensor

from specx.bench.cases import Case
from specx.bench.experiments.experiment import INPUT, Columns, Experiment, table
from specx.bench.grouping import Group, groups_of
from specx.bench.methods import BenchMethod, drafting
from specx.bench.prefill import read_beginning
from specx.bench.report.findings import Figure, Series, Table
from specx.bench.runs import Run
from specx.bench.watching import TokenAttention, looks
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.ops.chunks import Grid, count_chunks
from specx.ops.torch.scores import best_chunks
from specx.prompts.control import first_text_id, substitute

RUN = 8  # tokens: a run this long that stands in the prompt once was copied from there
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
    for case in bench.all_cases():
        runs = list(bench.alternate([case], methods))
        yield from _with_recall(bench, case, runs)


def layer_methods(layers: int) -> list[BenchMethod]:
    """Return SpecExtend retrieving by each layer."""
    return [
        drafting(
            f"layer {layer}",
            f"specextend, retrieving by layer {layer}",
            cache={"layer": layer},
        )
        for layer in range(layers)
    ]


def _with_recall(bench: Workbench, case: Case, runs: Sequence[Run]) -> Iterator[Run]:
    """The runs of a case with the recall of their layers, all at the output of the first."""
    output = runs[0].output
    tokenizer, cache = bench.pair.target.tokenizer, bench.profile.draft_cache
    # The control task writes in other tokens: what it copied is seen in the document's own.
    if case.task == "control":
        first = first_text_id(tokenizer)
        output = tuple(substitute(token, first) for token in output)
    copied = sources(case.ids, output)
    read = read_beginning(bench.pair, case.ids)
    tokens = (case.ids[-1], *runs[0].output)
    for layer, run in enumerate(runs):
        bench.announce(f"watching layer {layer}", case)
        recall = Recall.empty(bench.pair.target.num_heads)
        for look in looks(bench.pair.target, read, tokens, layer, cache.chunk):
            source = needed(copied, look)
            if source is not None:
                recall.count(look, source // cache.chunk, cache.top_k)
        chance = cache.top_k / count_chunks(len(case.ids), cache.chunk)
        facts = {"layer": layer, "chance": min(1.0, chance), **vars(recall)}
        yield replace(run, facts=facts)


def needed(copied: Sequence[int | None], look: TokenAttention) -> int | None:
    """Return the place in the prompt that the draft needs when the target last looked so, if there
    is one.

    Behind the token that looked comes the one that the target chose and has not read yet; what
    the draft has to guess first comes behind that.
    """
    guessed = look.place + 2
    return copied[guessed] if guessed < len(copied) else None


def sources(prompt: Sequence[int], output: Sequence[int]) -> list[int | None]:
    """Return, for each token of the output, the place in the prompt that it was copied from, as far
    as that is certain: it is in a run of ``RUN`` tokens that the prompt has exactly once."""
    places: dict[tuple[int, ...], int | None] = {}
    for place in range(len(prompt) - RUN + 1):
        run = tuple(prompt[place : place + RUN])
        places[run] = None if run in places else place
    found: list[int | None] = [None] * len(output)
    for start in range(len(output) - RUN + 1):
        source = places.get(tuple(output[start : start + RUN]))
        if source is not None:
            found[start : start + RUN] = range(source, source + RUN)
    return found


@dataclass
class Recall:
    """Counts of needed chunks that were among the chosen ones: of ``copied`` tokens, by the
    mean and the maximum over heads, and by each head alone."""

    copied: int
    mean: int
    max: int
    heads: list[int]

    @classmethod
    def empty(cls, heads: int) -> "Recall":
        return cls(0, 0, 0, [0] * heads)

    def count(self, look: TokenAttention, chunk: int, top_k: int) -> None:
        self.copied += 1
        self.mean += is_chosen(look.scores.mean(0), chunk, top_k)
        self.max += is_chosen(look.scores.amax(0), chunk, top_k)
        for head, scores in enumerate(look.scores):
            self.heads[head] += is_chosen(scores, chunk, top_k)


def is_chosen(scores: Tensor, chunk: int, top_k: int) -> bool:
    """Return True if cross-model retrieval by these scores [chunks] takes the chunk."""
    # Chunks as if they had a token each: their number is all that the choice needs.
    tokens = torch.tensor([len(scores)], device=scores.device)
    return chunk in best_chunks(scores, tokens, Grid(1), top_k).tolist()


def recall(runs: Sequence[Run], heads: str) -> float | None:
    """Return the recall over the copied tokens of all runs; None where nothing was copied."""
    copied = sum(run.facts["copied"] for run in runs)
    return sum(run.facts[heads] for run in runs) / copied if copied else None


def best_head(group: Group) -> tuple[int, float] | None:
    """Return the head with the highest recall, and its recall."""
    copied = sum(run.facts["copied"] for run in group.runs)
    hits = [sum(counts) for counts in zip(*(run.facts["heads"] for run in group.runs), strict=True)]
    best = max(range(len(hits)), key=lambda head: hits[head])
    return (best, hits[best] / copied) if copied else None


COLUMNS: Columns = {
    "layer": lambda group: group.fact("layer"),
    **INPUT,
    "tokens copied": lambda group: sum(run.facts["copied"] for run in group.runs),
    "recall, mean over heads": lambda group: recall(group.runs, "mean"),
    "recall, max over heads": lambda group: recall(group.runs, "max"),
    "recall, best head": lambda group: best[1] if (best := best_head(group)) else None,
    "best head": lambda group: best[0] if (best := best_head(group)) else None,
    "recall by chance": lambda group: mean(run.facts["chance"] for run in group.runs),
    "acceptance length": Group.acceptance,
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(runs)
    yield table(f"Retrieval layer, {task}", groups, COLUMNS)
    longest = [group for group in groups if group.length == groups[-1].length]
    where = f"{task}, {longest[0].input} tokens"
    layers = tuple(group.fact("layer") for group in longest)
    yield Figure(
        f"layers-{task}",
        f"Acceptance length by retrieval layer, {where}",
        "layer, from 0",
        "tokens per verification pass",
        (Series("mean over heads", layers, tuple(map(Group.acceptance, longest))),),
        level=1.0,
    )
    if any(run.facts["copied"] for group in longest for run in group.runs):
        yield Figure(
            f"recall-{task}",
            f"Recall of the chunk being copied, {where}",
            "layer, from 0",
            "recall",
            tuple(
                Series(
                    f"{heads} over heads",
                    layers,
                    tuple(recall(each.runs, heads) or 0.0 for each in longest),
                )
                for heads in ("mean", "max")
            ),
        )


EXPERIMENT = Experiment(
    name="layers",
    title="Retrieval layer and heads",
    about="recall and acceptance for every layer of the target and aggregation of heads",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
