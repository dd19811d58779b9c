"""Where the time goes, and what retrieval adds to it (the paper's Figure 4b and Table 8)."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from statistics import mean, median

import torch

from specx.bench.cases import Case, first_paragraphs
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.retrieval_cost import Place, retrieval_cost
from specx.bench.runs import Run
from specx.bench.shapes import DRAFTS, TARGETS
from specx.bench.workbench import Workbench

BEFORE = ("read", "tokenize", "load")
PREFILL = ("target_prefill", "draft_prefill")
DECODING = ("drafting", "verification", "keep", "retrieval", "host")
SHAPES = "shapes"  # the task of runs that time retrieval alone, on random caches
DRAFT = "68m"
LONGEST_ON_CPU = 4096  # tokens of the caches that are filled with random numbers
DEFINED = (
    "Host is what no other part claims; per token it is that of decoding alone, per document also "
    "what allocating the caches took. Read and tokenize are seconds for one document, load is for "
    "the pair, once, however many documents follow; a dash where nobody took the time."
)


def measure(bench: Workbench) -> Iterator[Run]:
    bench = replace(bench, shared=False)  # each run has a prefill of its own to be timed
    for task in bench.tasks:
        for length in bench.lengths:
            cases = bench.cases(length, task)
            before = {case.name: _before(bench, case) for case in cases}
            for run in bench.alternate(cases):
                yield replace(run, facts=before[run.case])
    yield from _measure_shapes(bench)


def _before(bench: Workbench, case: Case) -> dict[str, float]:
    """Seconds of each part before decoding, as far as they are known."""
    kind = bench.kind(case.task)
    document = first_paragraphs(case.document, case.prompt.units[-1].paragraph + 1)
    started = time.perf_counter()
    kind.prompts(document, case.length)
    seconds = {
        "read": bench.before.read / len(bench.documents),
        "tokenize": time.perf_counter() - started,
        "load": bench.before.load,
    }
    return {part: value for part, value in seconds.items() if value}


def _measure_shapes(bench: Workbench) -> Iterator[Run]:
    place = Place(bench.pair.target.device, bench.pair.target.dtype)
    short = [n for n in bench.lengths if place.device.type != "cpu" or n <= LONGEST_ON_CPU]
    for shape in TARGETS.values():
        for length in short:
            bench.listener.phase(f"retrieval: {shape.name}, {label(length)} tokens")
            settings = bench.profile.draft_cache
            with torch.inference_mode():
                cost = retrieval_cost(shape, DRAFTS[DRAFT], settings, length, place)
            run = Run("retrieval", shape.name, length, SHAPES, 0, length, (), 0.0)
            heads = f"{shape.num_heads} / {shape.num_kv_heads} of {shape.head_dim}"
            yield replace(run, facts={"heads": heads, **asdict(cost)})


def conclude(runs: Sequence[Run]) -> Findings:
    decoded = [run for run in runs if run.total_s and run.task != SHAPES]
    tables: list[Table] = []
    figures: list[Figure] = []
    sentences = [DEFINED]
    for task, of_task in by(decoded, "task").items():
        groups = _groups(of_task)
        tables += [_per_token(task, groups), _per_document(task, groups)]
        figures += [
            _stacked("token", task, "ms per emitted token", groups, ms_per_token),
            _stacked("document", task, "seconds per document", groups, s_per_document),
        ]
        retrieving = [own for own in groups if any("retrieval" in run.parts_ms for run in own)]
        if retrieving:
            tables.append(_overhead(task, retrieving))
            sentences += [_overhead_sentence(task, own) for own in retrieving]
    shapes = [run for run in runs if run.task == SHAPES]
    if shapes:
        tables.append(_shapes(shapes))
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of each method at each length, by length."""
    return [
        own
        for _, group in sorted(by(runs, "length").items())
        for own in by(group, "method").values()
    ]


def ms_per_token(run: Run) -> dict[str, float]:
    """Milliseconds of each part of decoding per token; they add up to decoding's own time."""
    tokens = max(1, len(run.output) - 1)  # prefill decides the first
    parts = {part: run.total_s[part] for part in DECODING if part != "host"}
    parts["host"] = max(0.0, run.decode_s - sum(parts.values()))
    return {part: 1e3 * seconds / tokens for part, seconds in parts.items()}


def s_per_document(run: Run) -> dict[str, float]:
    """Seconds of each part of a document's way."""
    before = {part: run.facts[part] for part in BEFORE if part in run.facts}
    return {**before, **{part: run.total_s[part] for part in (*PREFILL, *DECODING)}}


def mean_parts(
    runs: Sequence[Run], parts_of: Callable[[Run], dict[str, float]]
) -> dict[str, float]:
    """The mean of each part over the runs."""
    each = [parts_of(run) for run in runs]
    return {part: mean(parts[part] for parts in each) for part in each[0]}


def _per_token(task: str, groups: Sequence[Sequence[Run]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for own in groups:
        parts = mean_parts(own, ms_per_token)
        rows.append((own[0].method, label(own[0].length), *parts.values(), sum(parts.values())))
    columns = ("method", "input", *DECODING, "sum")
    note = "Milliseconds per emitted token, means over documents and repetitions."
    return Table(f"Latency of decoding, {task}", columns, tuple(rows), note=note)


def _per_document(task: str, groups: Sequence[Sequence[Run]]) -> Table:
    names = (*BEFORE, *PREFILL, *DECODING)
    rows: list[tuple[Cell, ...]] = []
    for own in groups:
        parts = mean_parts(own, s_per_document)
        cells = [parts.get(name) for name in names]
        rows.append((own[0].method, label(own[0].length), *cells, sum(parts.values())))
    columns = ("method", "input", *(name.replace("_", " ") for name in names), "sum")
    note = "Seconds per document, means over documents and repetitions."
    return Table(f"Latency of a document, {task}", columns, tuple(rows), note=note)


def _stacked(
    name: str,
    task: str,
    unit: str,
    groups: Sequence[Sequence[Run]],
    parts_of: Callable[[Run], dict[str, float]],
) -> Figure:
    bars = tuple(f"{own[0].method} {label(own[0].length)}" for own in groups)
    parts = [mean_parts(own, parts_of) for own in groups]
    known = [part for part in (*BEFORE, *PREFILL, *DECODING) if any(part in each for each in parts)]
    series = tuple(
        Series(part.replace("_", " "), bars, tuple(each.get(part, 0.0) for each in parts))
        for part in known
    )
    title = f"Latency breakdown per {name}, {task}"
    return Figure(f"breakdown-{name}-{task}", title, "", unit, series, kind="stacked")


def _overhead(task: str, groups: Sequence[Sequence[Run]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            own[0].method,
            label(own[0].length),
            _median_ms(own, "retrieval"),
            retrieval_share(own),
            _median_ms(own, "retrieval") / _median_ms(own, "verification"),
        )
        for own in groups
    ]
    columns = ("method", "input", "one retrieval, ms", "share of decoding", "of one verification")
    return Table(f"Retrieval overhead against length, {task}", columns, tuple(rows))


def retrieval_share(runs: Sequence[Run]) -> float:
    """Of the time of decoding."""
    return sum(run.total_s["retrieval"] for run in runs) / sum(run.decode_s for run in runs)


def _median_ms(runs: Sequence[Run], part: str) -> float:
    return median(run.parts_ms[part] for run in runs if part in run.parts_ms)


def _overhead_sentence(task: str, runs: Sequence[Run]) -> str:
    method, length = runs[0].method, label(runs[0].length)
    return (
        f"{task.capitalize()} at {length} tokens: a retrieval of {method} takes "
        f"{_median_ms(runs, 'retrieval'):.2f} ms, and all of them "
        f"{retrieval_share(runs):.1%} of the time of decoding."
    )


def _shapes(runs: Sequence[Run]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            run.case,
            run.facts["heads"],
            label(run.length),
            run.facts["scores_ms"],
            run.facts["cache_ms"],
            run.facts["scores_ms"] + run.facts["cache_ms"],
        )
        for run in runs
    ]
    columns = ("target", "query / KV heads", "cache", "scores, ms", "working cache, ms", "sum, ms")
    note = (
        f"On random caches, the draft's of the shape {DRAFT}; with the profile's chunk and top_k. "
        "Scores read the keys of one layer, so the number of layers does not matter."
    )
    return Table(
        "Retrieval overhead against the shape of the target", columns, tuple(rows), note=note
    )


EXPERIMENT = Experiment(
    "breakdown",
    "Latency breakdown",
    "where the time goes, and what retrieval adds (the paper's Figure 4b and Table 8)",
    measure,
    conclude,
)
