"""The page over the documents of an output folder, made of the reports that lie there."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specx.errors import printable
from specx.reports.links import link
from specx.reports.progress import counted, duration
from specx.reports.report import SCHEMA
from specx.reports.templates import templates

INDEX = "index.html"
FAILURE_SCHEMA = "specx.failure/1"
LONGEST_SENTENCE = 300  # characters that are shown of one

_ENDS = re.compile(r"(?<=[.!?。！？])\s")
_HEAD = 100  # bytes of a file, in which its schema is named


@dataclass(frozen=True)
class IndexEntry:
    """A document that is done. ``links``: addresses by what they lead to, the best first."""

    name: str
    sentence: str
    facts: tuple[str, ...]
    links: dict[str, str]


@dataclass(frozen=True)
class IndexFailure:
    """A document that failed, and why."""

    name: str
    reason: str


def index_page(folder: Path) -> str:
    """Return the page over all reports and failures below ``folder``, in which it will lie."""
    found = list(_entries(folder))
    return (
        templates()
        .get_template("index.html.j2")
        .render(
            name=printable(Path(os.path.abspath(folder)).name),  # noqa: PTH100 - keeps links
            entries=[entry for entry in found if isinstance(entry, IndexEntry)],
            failures=[entry for entry in found if isinstance(entry, IndexFailure)],
            counted=counted,
        )
    )


def _entries(folder: Path) -> Iterator[IndexEntry | IndexFailure]:
    """Yield what the files say, in the order of their paths. Other people's files are skipped."""
    for path in sorted(_json_files(folder)):
        try:
            plain = _read(path)
            if plain is not None:
                yield _entry(plain, path, folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _json_files(folder: Path) -> Iterator[Path]:
    for place, _, files in os.walk(folder):
        yield from (Path(place, name) for name in files if name.endswith(".json"))


def _read(path: Path) -> dict[str, Any] | None:
    """Return the object in a file of specx; None for another's, of which little is read."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if b'"specx.report/' not in head and FAILURE_SCHEMA.encode() not in head:
            return None
        plain: dict[str, Any] = json.loads(head + file.read())
    return plain


def _entry(plain: dict[str, Any], path: Path, folder: Path) -> IndexEntry | IndexFailure:
    place = path.relative_to(folder)
    if plain["schema"] == FAILURE_SCHEMA:
        return IndexFailure(printable(str(plain["input"]["name"])), str(plain["error"]))
    if plain["schema"].partition("/")[0] != SCHEMA.partition("/")[0]:
        raise ValueError("this is no report")
    files = {
        "report": path.with_suffix(".html"),
        "summary": path.with_suffix(".md"),
        "data": path,
    }
    return IndexEntry(
        name=printable(str(place.with_suffix(""))),
        sentence=_first_sentence(plain),
        facts=tuple(_facts(plain)),
        links={
            what: link(file, folder / INDEX)
            for what, file in files.items()
            if file == path or file.is_file()
        },
    )


def _first_sentence(plain: dict[str, Any]) -> str:
    """Return the first sentence of a summary, without its place."""
    if plain["citations"]:
        sentence = str(plain["citations"][0]["sentence"])
    else:
        paragraphs = [line for line in str(plain["summary"]).splitlines() if line.strip()]
        sentence = _ENDS.split(paragraphs[0].strip())[0] if paragraphs else ""
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return sentence[:LONGEST_SENTENCE].rsplit(" ", 1)[0] + " …"


def _facts(plain: dict[str, Any]) -> Iterator[str]:
    pages, warnings = int(plain["input"]["pages"]), len(plain["warnings"])
    if pages:
        yield counted(pages, "page")
    yield duration(float(plain["timings_s"]["total"]))
    if plain["steps"]:
        yield f"acceptance length {float(plain['acceptance_length']):.2f}"
    if warnings:
        yield counted(warnings, "warning")
