"""The time of each part, and what retrieval adds to it (the paper's Figure 4b and Table 8)."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from statistics import mean, median

import torch

from specx.bench.cases import Case, first_paragraphs
from specx.bench.experiments.experiment import INPUT, METHOD, Columns, Experiment, by_task, table
from specx.bench.grouping import Group, groups_of
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.retrieval_cost import Place, retrieval_cost
from specx.bench.runs import Run
from specx.bench.shapes import DRAFTS, TARGETS
from specx.bench.workbench import Workbench

BEFORE = ("read", "tokenize", "load")
PREFILL = ("target_prefill", "draft_prefill")
DECODING = ("drafting", "verification", "keep", "retrieval", "host")
ALL = (*BEFORE, *PREFILL, *DECODING)
SHAPES = "shapes"  # the task of runs that time retrieval alone, on random caches
DRAFT = "68m"
LONGEST_ON_CPU = 4096  # tokens of the caches that are filled with random numbers
DEFINED = (
    "Host is what no other part claims; per token it is that of decoding alone, per document also "
    "what allocating the caches took. Read and tokenize are seconds for one document, load is for "
    "the pair, once, however many documents follow; a dash where nobody took the time."
)

Parts = Callable[[Run], dict[str, float]]


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
    """Return the seconds of each part before decoding, as far as they are known."""
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
            heads = f"{shape.num_heads} / {shape.num_kv_heads} of {shape.head_dim}"
            yield Run(
                method="retrieval",
                case=shape.name,
                length=length,
                task=SHAPES,
                repeat=0,
                prompt_tokens=length,
                output=(),
                decode_s=0.0,
                facts={"heads": heads, **asdict(cost)},
            )


def ms_per_token(run: Run) -> dict[str, float]:
    """Return the milliseconds of each part of decoding per token; they add up to decoding's own
    time."""
    tokens = max(1, len(run.output) - 1)  # prefill decides the first
    parts = {part: run.total_s[part] for part in DECODING if part != "host"}
    parts["host"] = max(0.0, run.decode_s - sum(parts.values()))
    return {part: 1e3 * seconds / tokens for part, seconds in parts.items()}


def s_per_document(run: Run) -> dict[str, float]:
    """Return the seconds of each part of a document's way."""
    before = {part: run.facts[part] for part in BEFORE if part in run.facts}
    return {**before, **{part: run.total_s[part] for part in (*PREFILL, *DECODING)}}


def _mean_parts(group: Group, parts_of: Parts) -> dict[str, float]:
    """Return the mean of each part over the runs."""
    each = [parts_of(run) for run in group.runs]
    return {part: mean(parts[part] for parts in each) for part in each[0]}


def _columns(parts: Sequence[str], parts_of: Parts) -> Columns:
    """Make a column for each part, and their sum."""

    def cell(part: str) -> Callable[[Group], Cell]:
        return lambda group: _mean_parts(group, parts_of).get(part)

    return {
        **METHOD,
        **INPUT,
        **{part.replace("_", " "): cell(part) for part in parts},
        "sum": lambda group: sum(_mean_parts(group, parts_of).values()),
    }


def _median_ms(group: Group, part: str) -> float:
    return median(run.parts_ms[part] for run in group.runs if part in run.parts_ms)


def _retrieval_share(group: Group) -> float:
    """Return its share of the time of decoding."""
    retrieval = sum(run.total_s["retrieval"] for run in group.runs)
    return retrieval / sum(run.decode_s for run in group.runs)


OVERHEAD: Columns = {
    **METHOD,
    **INPUT,
    "one retrieval, ms": lambda group: _median_ms(group, "retrieval"),
    "share of decoding": _retrieval_share,
    "of one verification": (
        lambda group: _median_ms(group, "retrieval") / _median_ms(group, "verification")
    ),
}


def _figure(name: str, task: str, unit: str, groups: Sequence[Group], parts_of: Parts) -> Figure:
    bars = tuple(f"{group.method} {group.input}" for group in groups)
    means = [_mean_parts(group, parts_of) for group in groups]
    series = tuple(
        Series(part.replace("_", " "), bars, tuple(each.get(part, 0.0) for each in means))
        for part in ALL
        if any(part in each for each in means)
    )
    title = f"Latency breakdown per {name}, {task}"
    return Figure(f"breakdown-{name}-{task}", title, "", unit, series, kind="stacked")


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    if task == SHAPES:
        return
    groups = groups_of(run for run in runs if run.total_s)
    if not groups:
        return
    note = "{} per {}, means over documents and repetitions."
    yield table(
        f"Latency of decoding, {task}",
        groups,
        _columns(DECODING, ms_per_token),
        note=note.format("Milliseconds", "emitted token"),
    )
    yield table(
        f"Latency of a document, {task}",
        groups,
        _columns(ALL, s_per_document),
        note=note.format("Seconds", "document"),
    )
    yield _figure("token", task, "ms per emitted token", groups, ms_per_token)
    yield _figure("document", task, "seconds per document", groups, s_per_document)
    retrieving = [g for g in groups if any("retrieval" in run.parts_ms for run in g.runs)]
    if retrieving:
        yield table(f"Retrieval overhead against length, {task}", retrieving, OVERHEAD)


def conclude(runs: Sequence[Run]) -> Findings:
    findings = by_task(describe, DEFINED)(runs)
    shapes = [_shape_row(run) for run in runs if run.task == SHAPES]
    if not shapes:
        return findings
    note = (
        f"On random caches, the draft's of the shape {DRAFT}; with the profile's chunk and top_k. "
        "Scores read the keys of one layer, so the number of layers does not matter."
    )
    title = "Retrieval overhead against the shape of the target"
    rows = tuple(tuple(row.values()) for row in shapes)
    overhead = Table(title, tuple(shapes[0]), rows, note=note)
    return replace(findings, tables=(*findings.tables, overhead))


def _shape_row(run: Run) -> dict[str, Cell]:
    facts = run.facts
    return {
        "target": run.case,
        "query / KV heads": facts["heads"],
        "cache": label(run.length),
        "scores, ms": facts["scores_ms"],
        "working cache, ms": facts["cache_ms"],
        "sum, ms": facts["scores_ms"] + facts["cache_ms"],
    }


EXPERIMENT = Experiment(
    name="breakdown",
    title="Latency breakdown",
    about="where the time goes, and what retrieval adds (the paper's Figure 4b and Table 8)",
    measure=measure,
    conclude=conclude,
)
