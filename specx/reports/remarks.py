"""Sentences for stderr about a finished document."""

from typing import Any

from specx.reports.progress import counted
from specx.reports.report import Report


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
    removed = report.removed
    if debug and removed.lines:
        said.append(
            f"{counted(removed.lines, 'line')} on {counted(removed.pages, 'page')} taken out as "
            "running headers, footers or page numbers"
        )
    return said


def _chosen(generation: dict[str, dict[str, Any]]) -> str:
    """Say which settings of the choice of tokens are whose."""
    keys: dict[str, list[str]] = {}
    for name, entry in generation.items():
        keys.setdefault(entry["from"], []).append(f"{name} {entry['value']}")
    stated = {"model": "the model's generation_config.json", "specx": "specx's defaults"}
    parts = (
        f"{', '.join(found)} by {stated.get(source, f'the {source}')}"
        for source, found in keys.items()
    )
    return f"tokens were chosen with {'; '.join(parts)}"
