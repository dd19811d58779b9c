"""Sentences for stderr about a finished document."""

from specx.reports.progress import counted
from specx.reports.report import Report


def remarks(report: Report, *, debug: bool = False) -> list[str]:
    """Return the outcome of a check that found nothing wrong, if one was asked for.

    ``debug``: say the report's notes, too, and how many lines were taken out of the document's
    pages.
    """
    said = list(report.notes) if debug and report.input.parts else []
    if report.lossless is not None and report.lossless.identical:
        said.append(f"identical to plain decoding ({counted(report.tally.tokens, 'token')})")
    removed = report.removed
    if debug and removed.lines:
        said.append(
            f"{counted(removed.lines, 'line')} on {counted(removed.pages, 'page')} taken out as "
            "running headers, footers or page numbers"
        )
    return said
