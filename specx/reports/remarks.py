"""Sentences for stderr about a finished document."""

from typing import Any

from specx.reports.progress import counted
from specx.reports.report import ReferenceCheck, Report

WHOSE = {"model": "the model's generation_config.json"}


def remarks(report: Report, *, debug: bool = False) -> list[str]:
    """Return the outcome of a check that found nothing wrong, if one was asked for.

    ``debug``: say the report's notes, too, how tokens were chosen, and how many lines were taken
    out of the document's pages.
    """
    said = list(report.notes) if debug and report.input.parts else []
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


def _reference(check: ReferenceCheck | None) -> list[str]:
    if check is None:
        return []
    if check.skipped is not None:
        return [f"not compared with transformers: {check.skipped}"]
    if check.identical:
        return [f"the first {counted(check.tokens, 'token')} are those of transformers, too"]
    if check.tie:
        return [
            f"transformers writes another token at {check.position}, a tie of two (logit gap "
            f"{check.logit_gap:.2g})"
        ]
    return []  # an error of its own


def _chosen(generation: dict[str, dict[str, Any]]) -> str:
    """Say whose the settings of the choice of tokens are; our defaults need no names."""
    keys: dict[str, list[str]] = {}
    for name, entry in generation.items():
        if entry["from"] != "specx":
            keys.setdefault(entry["from"], []).append(f"{name} {entry['value']}")
    parts = [
        f"{', '.join(found)} by {WHOSE.get(source, f'the {source}')}"
        for source, found in keys.items()
    ]
    return "; ".join(["tokens were chosen with specx's defaults", *parts])
