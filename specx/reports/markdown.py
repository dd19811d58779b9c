"""The report as a Markdown page for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from specx.reports.markdown_notation import Row, bullets, plain, table
from specx.reports.progress import counted
from specx.reports.report import Citation, PartSummary, Report

GB = 10**9


def to_markdown(report: Report) -> str:
    """Write the page: summary, citations, parts, figures, latency, environment, warnings if any."""
    sections = [
        f"# Summary of {plain(report.input.name)}",
        report.summary.strip() or "(no text)",
        *_section("Citations", _citations(report.citations)),
        *_section("Parts", _parts(report.levels)),
        *_section("Figures", table(("figure", "value"), _figures(report))),
        *_section("Acceptance by position", _acceptance(report)),
        *_section("Latency", _latency(report)),
        *_section("Environment", bullets(_environment(report.environment))),
        *_section("Warnings", bullets(report.warnings)),
    ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = "\n".join(lines)
    return [f"## {title}", body] if body else []


def _citations(citations: Iterable[Citation]) -> Iterator[str]:
    for number, citation in enumerate(citations, 1):
        yield f"{number}. “{plain(citation.sentence)}” ({plain(citation.place)})"


def _parts(levels: Sequence[Sequence[PartSummary]]) -> Iterator[str]:
    """Write the summaries of parts, level by level, without the last one if it is the summary."""
    for number, level in enumerate(levels, 1):
        if len(level) > 1:
            for part in level:
                yield f"- level {number}, {part.place}: {plain(part.summary) or '(no text)'}"


def _figures(report: Report) -> Iterator[Row]:
    source, tally, speed = report.input, report.tally, report.to_dict()["tokens_per_second"]
    pages = f"{counted(source.pages, 'page')}, " if source.pages else ""
    yield "input", f"{pages}{counted(source.characters, 'character')}"
    yield "prompt", f"{counted(source.prompt_tokens, 'token')} in {counted(source.parts, 'part')}"
    yield "profile", report.profile
    yield "method", report.method
    yield "tokens written", f"{tally.tokens:,}"
    yield "steps (target verification passes)", f"{tally.steps:,}"
    yield "acceptance length τ (tokens per drafting step)", f"{tally.acceptance_length:.2f}"
    yield "accepted drafts per step (τ without bonus token)", f"{tally.accepted_per_step:.2f}"
    yield "tokens per second, decoding", f"{speed['decode']:.1f}"
    yield "tokens per second, end to end", f"{speed['end_to_end']:.1f}"
    for name, ratio in (report.speedup.ratios() or {}).items():
        yield f"speedup over plain decoding, {name}", f"{ratio:.2f}"
    yield "peak memory", f"{report.peak_memory_bytes / GB:.2f} GB"
    if report.lossless is not None:
        yield "compared with plain decoding", _lossless(report)


def _lossless(report: Report) -> str:
    check = report.lossless
    if check is None or check.identical:
        return "identical"
    gap = "" if check.logit_gap is None else f", logit gap {check.logit_gap:.2g}"
    return f"differs from token {check.position}{gap}"


def _acceptance(report: Report) -> Iterator[str]:
    """Write the rates by both definitions, since "acceptance rate" may mean either."""
    rates = report.tally.acceptance_by_position()
    pairs = zip(rates["unconditional"], rates["conditional"], strict=True)
    rows = [(str(i), f"{one:.1%}", f"{other:.1%}") for i, (one, other) in enumerate(pairs, 1)]
    if rows:
        yield from table(("position i", "unconditional", "conditional"), rows)
        yield ""
        yield "Unconditional: share of the drafting steps that accepted at least i drafts."
        yield "Conditional: share among the steps that accepted at least i − 1."


def _latency(report: Report) -> Iterator[str]:
    total = report.timings.total
    rows = [
        (part.replace("_", " "), f"{seconds:.3f}", f"{seconds / total:.1%}" if total else "")
        for part, seconds in vars(report.timings).items()
    ]
    return table(("part", "seconds", "share of total"), rows)


def _environment(values: dict[str, Any], group: str = "") -> Iterator[str]:
    for name, value in values.items():
        label = f"{group}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _environment(value, f"{label}: ")
        else:
            yield f"{label}: {'unknown' if value is None else value}"
