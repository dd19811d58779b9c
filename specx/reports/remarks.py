"""Sentences for stderr about a finished document."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from specx.reports.progress import counted
from specx.reports.report import ReferenceCheck, Report

MOST_SHOWN = 5  # statements that one line lists
WHOSE = {"model": "the model's generation_config.json"}


def remarks(report: Report, *, debug: bool = False) -> list[str]:
    """Return remarks on statements not in the document, and on a lossless check that passed.

    ``debug``: also the report's notes, the sampling settings, and the number of lines removed from
    pages.
    """
    unfound = nowhere(report)
    said = [unfound] if unfound else []
    said += list(report.notes) if debug and report.input.parts else []
    if debug and report.generation:
        said.append(_chosen(report.generation))
    if report.lossless is not None and report.lossless.identical:
        said.append(f"identical to plain decoding ({counted(report.tally.tokens, 'token')})")
        said += _reference(report.lossless.reference)
    removed = report.removed
    if debug and removed.lines:
        said.append(
            f"{counted(removed.lines, 'line')} on {counted(removed.pages, 'page')} taken out as "
            "running headers, footers or page numbers"
        )
    return said


def nowhere(report: Report) -> str:
    """Return a sentence on statements not found in the document; empty if there are none."""
    found = report.not_in_document
    if not found:
        return ""
    kinds = Counter(statement.kind for statement in found)
    counts = [counted(kinds[kind], kind) for kind in ("number", "date", "name") if kinds[kind]]
    shown = ", ".join(statement.text for statement in found[:MOST_SHOWN])
    more = " …" if len(found) > MOST_SHOWN else ""
    where = "is" if len(found) == 1 else "are"
    return f"{joined(counts)} {where} nowhere in the document: {shown}{more}"


def joined(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: "one, two and three"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _reference(check: ReferenceCheck | None) -> list[str]:
    if check is None:
        return []
    if check.skipped is not None:
        return [f"not compared with transformers: {check.skipped}"]
    if check.identical:
        return [f"the first {counted(check.tokens, 'token')} are identical to transformers'"]
    if check.tie:
        return [
            f"transformers chooses another token at position {check.position}, a tie (logit gap "
            f"{check.logit_gap:.2g})"
        ]
    return []  # an error of its own


def _chosen(generation: dict[str, dict[str, Any]]) -> str:
    """Return where the sampling settings come from; our defaults are left out."""
    keys: dict[str, list[str]] = {}
    for name, entry in generation.items():
        if entry["from"] != "specx":
            keys.setdefault(entry["from"], []).append(f"{name} {entry['value']}")
    parts = [
        f"{', '.join(found)} by {WHOSE.get(source, f'the {source}')}"
        for source, found in keys.items()
    ]
    return "; ".join(["tokens were chosen with specx's defaults", *parts])
