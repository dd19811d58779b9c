"""The time of each part, and the cost of retrieval (the paper's Figure 4b and Table 8)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

from specx.bench.experiments.experiment import INPUT, METHOD, Columns, Experiment, in_turn, table
from specx.bench.grouping import Group, groups_of
from specx.bench.report.report import Cell, Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench

PREFILL = ("target_prefill", "draft_prefill")
DECODING = ("drafting", "verification", "keep", "retrieval", "host")
ALL = (*PREFILL, *DECODING)
DEFINED = (
    "Host: the time outside all other parts. Figures per token count decoding alone; figures per "
    "document also count the allocation of caches."
)

Parts = Callable[[Measurement], dict[str, float]]


def measure(bench: Workbench) -> Iterator[Measurement]:
    yield from in_turn(replace(bench, shared=False))  # each run times a prefill of its own


def ms_per_token(run: Measurement) -> dict[str, float]:
    """Return the milliseconds of each part of decoding per token. They add up to the total."""
    tokens = max(1, len(run.output) - 1)  # prefill decides the first
    parts = {part: run.total_s[part] for part in DECODING if part != "host"}
    parts["host"] = max(0.0, run.decode_s - sum(parts.values()))
    return {part: 1e3 * seconds / tokens for part, seconds in parts.items()}


def s_per_document(run: Measurement) -> dict[str, float]:
    """Return the seconds of each part of a document's processing."""
    return {part: run.total_s[part] for part in ALL}


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
    """Return retrieval's share of the decoding time."""
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


def describe(task: str, runs: list[Measurement]) -> Iterator[Table]:
    groups = groups_of(run for run in runs if run.total_s)  # others time no parts
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
    retrieving = [g for g in groups if any("retrieval" in run.parts_ms for run in g.runs)]
    if retrieving:
        yield table(f"Retrieval overhead against length, {task}", retrieving, OVERHEAD)


EXPERIMENT = Experiment(
    name="breakdown",
    title="Latency breakdown",
    about="where the time goes, and what retrieval adds (the paper's Figure 4b and Table 8)",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
