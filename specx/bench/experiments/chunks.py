"""Chunks that end where sentences end against chunks of fixed size."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

from specx.bench.acceptance import acceptance_figure, mean_acceptance
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by, by_length, ratios, same_output, speed, speedups
from specx.bench.lengths import label
from specx.bench.methods import BenchMethod
from specx.bench.report.findings import Cell, Findings, Table
from specx.bench.runs import Run
from specx.bench.sentence_chunks import SentenceChunks, fixed_settings
from specx.bench.variants import changed, find_each
from specx.bench.wording import times
from specx.bench.workbench import Workbench
from specx.profile import Profile

FIXED = "specextend"
SENTENCES = SentenceChunks("sentences", "specextend with chunks that end where sentences end")
EVEN = SentenceChunks("even", "the same with as many chunks of equal size", even=True)
COLUMNS = (
    "chunks",
    "tokens in a chunk",
    "input",
    "acceptance length",
    "tokens/s",
    "speedup",
    "retrieval ms",
    "same output",
)
NOTE = (
    "Working caches of the same size in tokens. Sentences are chosen whole, by their mean "
    "attention; written text is chunks of fixed size, and the first goes on behind the request. "
    "even: the same with chunks of equal size, as many as there are sentences. fixed: chunks of "
    "the engine, counted from the first token, so that the request may share one with the "
    "document. Medians over documents, acceptance is their mean."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = compared(bench.profile)
    sizes = {method.name: size for method, size in methods}
    for task in bench.tasks:
        for length in bench.lengths:
            for run in bench.alternate(bench.cases(length, task), [m for m, _ in methods]):
                tokens = sizes[run.method] or run.prompt_tokens / run.facts["sentences"]
                yield replace(run, facts={**run.facts, "chunk_tokens": tokens})


def compared(profile: Profile) -> list[tuple[BenchMethod, int | None]]:
    """The methods, each with its tokens in a chunk where they are fixed. Half the profile's chunk
    is there too: a sentence is often shorter than a chunk, and borders are not size."""
    cache = profile.draft_cache
    sizes: dict[str, int | None] = {FIXED: cache.chunk}
    if cache.chunk % 2 == 0:
        half = cache.chunk // 2
        sizes[changed(FIXED, **fixed_settings(cache, half))] = half
    SENTENCES.check(profile)
    methods = find_each(tuple(sizes), profile)
    return [*((method, sizes[method.name]) for method in methods), (EVEN, None), (SENTENCES, None)]


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        rows = [
            _row(method, length, group)
            for length, group in by_length(of_task)
            for method in by(group, "method")
        ]
        tables.append(Table(f"Borders of chunks, {task}", COLUMNS, tuple(rows), FIXED, NOTE))
        figures.append(
            acceptance_figure(
                f"chunks-{task}", f"Acceptance length by borders of chunks, {task}", of_task
            )
        )
        sentences += [
            f"{task.capitalize()}, {label(length)}: {sentence}"
            for length, group in by_length(of_task)
            if (sentence := _sentence(group))
        ]
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def _row(method: str, length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    own, found = by(runs, "method")[method], speedups(runs, method, FIXED)
    return (
        method if method in (SENTENCES.name, EVEN.name) else "fixed",
        mean(run.facts["chunk_tokens"] for run in own),
        label(length),
        mean_acceptance(own),
        speed(own),
        median(found) if found else None,
        median(run.parts_ms.get("retrieval", 0.0) for run in own),
        same_output(runs, method, FIXED),
    )


def _sentence(runs: Sequence[Run]) -> str:
    """How sentences compare with even chunks and with the engine's; nothing without all."""
    accepted = ratios(runs, lambda run: run.acceptance_length, SENTENCES.name, EVEN.name)
    apart = ratios(runs, lambda run: run.acceptance_length, EVEN.name, FIXED)
    faster = speedups(runs, SENTENCES.name, EVEN.name)
    if not (accepted and apart and faster):
        return ""
    verdict = "help" if median(accepted) > 1 else "do not help"
    return (
        f"borders at sentences {verdict} acceptance ({times(median(accepted))} that of as many "
        f"even chunks, at {times(median(faster))} their speed); even chunks with the request "
        f"apart accept {times(median(apart))} what the chunks of the profile do."
    )


EXPERIMENT = Experiment(
    "chunks",
    "Chunk borders at sentences",
    "chunks that end where sentences end against chunks of fixed size",
    measure,
    conclude,
)
