"""Digests of the corpus by the embedded pair: what they quote, and where they say that it stands.

Six documents, each of another kind, are summarized in the usual tests, all forty in a slow one.
"""

import json
import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

import pytest

from specx.cli.main import run
from tests.corpus.cases import CASES
from tests.corpus.expected import Case, Made
from tests.corpus.independent import letters, page_texts, stands_on
from tests.threads import threads

QUOTED = ("text", "item")
ASKED = re.compile(r"the digest has (\d+) sentences? because ")
SAMPLE = (
    "manual/chapters.pdf",
    "report/ferry.docx",
    "paper/three.pdf",
    "scanned/pictures.pdf",
    "languages/italian.md",
    "code/choir.pdf",
)

Report = dict[str, Any]
Summarize = Callable[[Sequence[Case]], dict[str, Report | None]]


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    """Summarize documents in one run, and return their reports; None for a refused one."""

    def reports(cases: Sequence[Case]) -> dict[str, Report | None]:
        for case in cases:
            path = tmp_path / "in" / case.id
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(case.make().data)
        out = tmp_path / "out"
        how = ["--out", str(out), "--quiet", "--set", "fallback.below=null"]
        with threads(1):
            run(["summarize", str(tmp_path / "in"), *how])
        written = {case.id: out / "in" / f"{case.id}.json" for case in cases}
        return {
            name: json.loads(path.read_text()) if path.exists() else None
            for name, path in written.items()
        }

    return reports


def test_a_document_of_each_kind(summarize: Summarize, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.id in SAMPLE]
    assert len({case.kind for case in cases}) == len(SAMPLE) == 6
    reports = summarize(cases)
    assert {case.id: list(faults(case, reports[case.id])) for case in cases} == {
        case.id: [] for case in cases
    }
    assert_that_citations_lead_to_their_sentences(reports, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a minute where nothing else runs
def test_all_documents(summarize: Summarize, tmp_path: Path) -> None:
    reports = summarize(CASES)
    assert_that_citations_lead_to_their_sentences(reports, tmp_path)
    found = {case.id: list(faults(case, reports[case.id])) for case in CASES}
    print(f"\n{sum(not each for each in found.values())} of {len(CASES)} digests are right")
    assert {name: each for name, each in found.items() if each} == {}


def assert_that_citations_lead_to_their_sentences(
    reports: dict[str, Report | None], folder: Path
) -> None:
    """Follow the links of each page: into the PDF at a page, or to a marked passage of the text."""
    for name, report in reports.items():
        page = folder / "out" / "in" / f"{name}.html"
        for number, citation in enumerate(report["citations"] if report else (), 1):
            item = (
                page.read_text().partition(f'<li id="sentence-{number}"')[2].partition("</li>")[0]
            )
            (address,) = re.findall(r'href="([^"]*)"', item)
            target, anchor = address.split("#")
            file = (page.parent / unquote(target)).resolve()
            if citation["page"] is not None:
                assert (file.name, anchor) == (PurePath(name).name, f"page={citation['page']}")
                assert file.read_bytes().startswith(b"%PDF-")
                continue
            found = file.read_text().partition(f'id="{anchor}"></span>')[2]
            passage, _, back = found.partition('<a class="back" href="')
            assert letters(unescape(passage)) == letters(citation["sentence"])
            assert unquote(back.partition('"')[0]) == f"{page.name}#sentence-{number}"


def faults(case: Case, report: Report | None) -> list[str]:
    """Return what is wrong with a digest, each in a sentence."""
    if case.refused or report is None:
        return [] if case.refused and report is None else ["refused, or read though it is a scan"]
    made, found = case.make(), []
    citations = report["citations"]
    if case.kind == "short":
        same = letters(report["summary"]) == letters(" ".join(b.text for b in made.blocks))
        return [] if same and not citations else ["not printed as it is"]
    (asked,) = [int(each[1]) for note in report["notes"] if (each := ASKED.match(note))]
    if not asked - 3 <= len(citations) <= asked:
        found.append(f"{len(citations)} sentences")
    said = [letters(citation["sentence"]) for citation in citations]
    found += [f"said twice: {one}" for one in {one for one in said if said.count(one) > 1}]
    places = [_place(citation, made) for citation in citations]
    known = [place for place in places if place is not None]
    found += [
        f"not in the document, or not there: {citation}"
        for citation, place in zip(citations, places, strict=True)
        if place is None or not _is_there(citation, made)
    ]
    return found + (["out of order"] if known != sorted(known) else [])


def _place(citation: dict[str, Any], made: Made) -> int | None:
    """Return the place of the paragraph that holds the sentence and is where the citation says.

    None also for a sentence that breaks off.
    """
    wanted = letters(citation["sentence"])
    for place, block in enumerate(made.blocks):
        there = block.kind in QUOTED and block.part == "body" and block.page == citation["page"]
        whole = wanted[-1:] in (".", "!", "?", ":") or letters(block.text).endswith(wanted)
        if there and whole and wanted in letters(block.text):
            return place
    return None


def _is_there(citation: dict[str, Any], made: Made) -> bool:
    """Return True if the page, or the lines, of a citation hold its sentence.

    Formats with neither have headings, which the paragraphs of their author tell.
    """
    if citation["page"] is not None:
        return stands_on(citation["sentence"], citation["page"], page_texts(made.data))
    if citation["lines"]:
        first, last = citation["lines"]
        lines = made.data.decode().split("\n")[first - 1 : last]
        return letters(citation["sentence"]) in letters("".join(lines))
    heading = ""
    for block in made.blocks:
        if block.kind == "heading":
            heading = block.text
        elif letters(citation["sentence"]) in letters(block.text):
            return citation["heading"] in (heading or None, heading)
    return False
