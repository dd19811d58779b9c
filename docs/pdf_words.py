"""Compare the words that specx reads in PDFs with those of poppler and PDFium.

``python docs/pdf_words.py FILES [--json OUT] [--pairs FOLDER] [--repeat N]`` prints a table. Needs
``pdftotext`` (poppler-utils) and the package ``pypdfium2``. With ``--pairs`` it says also how many
neighbouring pairs of words are read as a person wrote them down: ``FOLDER`` holds the text of some
pages in the right order, ``STEM-PAGE.txt`` for a page of ``STEM.pdf``.
"""

import argparse
import json
import re
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import pypdfium2
from pypdf import PdfReader

from specx.documents.document import Document
from specx.documents.jsonl import require_documents
from specx.documents.read import read_documents

# A word is a run of two letters or more; digits, and with them marks of notes, count nowhere.
# Everything is done to all readers alike. NFKC takes ligatures, full width and Arabic presentation
# forms apart; soft hyphens are dropped; the codes of TeX's fonts for ligatures, which no extractor
# decodes in Type 3 fonts, become letters. A hyphen between letters is dropped, too, with the line
# end behind it: whether the hyphen of "run-/time" belongs to the word is a guess of each reader,
# which is not measured here. No other gap is closed or opened: "beg an as" and "overathousand" are
# other words than "began as" and "over a thousand".
_LIGATURES = str.maketrans(
    {"\x1b": "ff", "\x1c": "fi", "\x1d": "fl", "\x1e": "ffi", "\x1f": "ffl", "\u00ad": None}
)
_HYPHEN = r"[-\u2010\u2011](?:[ \t]*\r?\n[ \t]*)?|[\x02\ufffe]\s*"  # the last two are PDFium's
_BREAK = re.compile(rf"(?<=[^\W\d_])(?:{_HYPHEN})(?=[^\W\d_])")
_WORD = re.compile(r"[^\W\d_]+(?:[\u0300-\u036f]+[^\W\d_]*)*")
# Chinese and Japanese have no gaps between words, so gaps between their letters are dropped, and
# each pair of neighbouring letters counts as a word. Korean, Arabic and Hebrew have gaps.
_IDEOGRAPH = r"[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
_IDEOGRAPHS = re.compile(f"{_IDEOGRAPH}+")
_IDEOGRAPH_GAP = re.compile(rf"(?<={_IDEOGRAPH})\s+(?={_IDEOGRAPH})")
T = TypeVar("T")
HEADER = (
    "file", "producer", "pages", "specx ~ poppler", "PDFium ~ poppler", "ours in poppler",
    "ours in PDFium", "ours in either", "poppler's in ours", "s: specx, poppler, PDFium",
)  # fmt: skip
SHARES = (
    "specx_f1",
    "pdfium_f1",
    "ours_in_poppler",
    "ours_in_pdfium",
    "ours_in_either",
    "poppler_in_ours",
)


def words(text: str) -> list[str]:
    """Return the words of ``text`` in order, in lower case."""
    text = unicodedata.normalize("NFKC", text.translate(_LIGATURES)).casefold()
    text = _IDEOGRAPH_GAP.sub("", _BREAK.sub("", text))
    return [word for run in _WORD.findall(text) for word in _split(run)]


def _split(run: str) -> Iterator[str]:
    for ideographs in _IDEOGRAPHS.findall(run):
        yield from map("".join, pairwise(ideographs))
    for rest in _IDEOGRAPHS.split(run):
        if len(rest) >= 2:
            yield rest


def shared(some: Counter[Any], others: Counter[Any]) -> float:
    """Return the share of ``some`` that ``others`` has too, each as often as it comes."""
    return (some & others).total() / (some.total() or 1)


def f1(some: Counter[str], others: Counter[str]) -> float:
    return 2 * (some & others).total() / ((some.total() + others.total()) or 1)


def poppler(path: Path, *options: str) -> str:
    """Return the text as poppler orders it; with ``-raw`` as the file does."""
    command = ("pdftotext", "-enc", "UTF-8", *options, str(path), "-")
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def pdfium(path: Path) -> list[str]:
    """Return the text of each page as PDFium orders it."""
    with pypdfium2.PdfDocument(path) as pdf:
        return [page.get_textpage().get_text_range() for page in pdf]


def _timed(read: Callable[[Path], T], path: Path, repeat: int) -> tuple[T, float]:
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        result = read(path)
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


def measure(path: Path, repeat: int, truths: Sequence[Path]) -> dict[str, Any]:
    """Return the row of one file: shares from 0 to 1, and seconds, the best of ``repeat``."""
    found, ours_s = _timed(lambda path: read_documents(str(path)), path, repeat)
    (document,) = require_documents(found)
    # In the file's order no column comes between the halves of a broken word.
    theirs, poppler_s = _timed(lambda path: poppler(path, "-raw"), path, repeat)
    pages, pdfium_s = _timed(pdfium, path, repeat)
    ours = Counter(words(document.text))
    put_back = Counter(words("\n\n".join(row.text for row in document.furniture)))
    by_poppler, by_pdfium = Counter(words(theirs)), Counter(words("\f".join(pages)))
    return {
        "file": path.name,
        "producer": str((PdfReader(path).metadata or {}).get("/Producer", "")),
        "pages": len(pages),
        "specx_f1": f1(ours, by_poppler),
        "pdfium_f1": f1(by_pdfium, by_poppler),
        "ours_in_poppler": shared(ours, by_poppler),
        "ours_in_pdfium": shared(ours, by_pdfium),
        "ours_in_either": shared(ours, by_pdfium | by_poppler),
        "poppler_in_ours": shared(by_poppler, ours + put_back),
        "seconds": [round(seconds, 3) for seconds in (ours_s, poppler_s, pdfium_s)],
        "not_in_either": dict((ours - (by_pdfium | by_poppler)).most_common(40)),
        "missing": dict((by_poppler - ours - put_back).most_common(40)),
        "pairs": [_order(truth, path, document, pages) for truth in truths],
    }


def _order(truth: Path, path: Path, document: Document, by_pdfium: list[str]) -> dict[str, Any]:
    """Return the shares of the pairs of neighbouring words in ``truth`` that each reader has."""
    number = int(truth.stem.rpartition("-")[2])
    blocks = truth.read_text(encoding="utf-8").split("\n\n")  # their own order is free
    right = Counter(pair for block in blocks for pair in pairwise(words(block)))
    page = next((page.text for page in document.pages if page.number == number), "")
    readers = {
        "specx": page,
        "poppler": poppler(path, "-f", str(number), "-l", str(number)),
        "pdfium": by_pdfium[number - 1],
    }
    found = {name: shared(right, Counter(pairwise(words(text)))) for name, text in readers.items()}
    return {"file": path.name, "page": number, "pairs": right.total(), **found}


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _cells(row: dict[str, Any]) -> list[str]:
    shares = [f"{row[key]:.3f}" for key in SHARES]
    seconds = ", ".join(f"{value:.1f}" for value in row["seconds"])
    return [row["file"], row["producer"][:28], str(row["pages"]), *shares, seconds]


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = [mean(values) for values in zip(*(row["seconds"] for row in rows), strict=True)]
    shares = {key: mean(row[key] for row in rows) for key in SHARES}
    pages = sum(row["pages"] for row in rows)
    return {"file": "mean", "producer": "", "pages": pages, "seconds": seconds, **shares}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all figures to OUT")
    parser.add_argument("--pairs", type=Path, metavar="FOLDER", help="texts in the right order")
    parser.add_argument("--repeat", type=int, default=1, help="read so often; the best time counts")
    given = parser.parse_args(arguments)
    rows = []
    for path in given.files:
        truths = sorted(given.pairs.glob(f"{path.stem}-[0-9]*.txt")) if given.pairs else []
        print(path.name, file=sys.stderr)
        rows.append(measure(path, given.repeat, truths))
    print(_table(HEADER, [_cells(row) for row in (*rows, _means(rows))]))
    if orders := [order for row in rows for order in row["pairs"]]:
        readers = ("specx", "poppler", "pdfium")
        found = [[f"{order[reader]:.3f}" for reader in readers] for order in orders]
        places = [[order["file"], str(order["page"])] for order in orders]
        cells = [place + shares for place, shares in zip(places, found, strict=True)]
        print("\n" + _table(("word pairs of", "page", *readers), cells))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
