"""Hostile files for each reader, as many as asked for: the same seed gives the same files."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.documents import pdfs
from tests.fuzz import grammar
from tests.fuzz.mutations import PDF_WORDS, TEXT_WORDS, mutated

_ROOT = Path(__file__).parents[2]
_LINES = (
    "The bridge was closed on a Monday.\nNobody was allowed to walk or ride on it.\n\n• One\n• Two"
)
_TEXT = f"""A Title
=======

{_LINES}

1.1 Numbers ..... 7
\u0627\u062c\u062a\u0645\u0639\u062a | a | b |
e-
mail \u00ad and 1,240 ships “passed”.
"""
_MARKDOWN = """---
title: A
---
# One

A *text* with `code` and [a link](x.md).[^1]

| a | b |
|---|---|
| 1 | 2 |

- item
  - [ ] inner
1. first

> quoted

```py
print()
```
<div>html</div>
[^1]: note
"""


def pdf_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield kinds and files. Three of four are damaged files, the others are made by a grammar."""
    chance = random.Random(seed)
    seeds = _pdf_seeds()
    kinds = list(grammar.KINDS)
    for number in range(count):
        if number % 4 == 3:
            kind = kinds[number // 4 % len(kinds)]
            made = grammar.KINDS[kind](chance)
            # A bomb that is damaged is none.
            yield kind, mutated(chance, made, seeds, PDF_WORDS) if chance.random() < 0.3 else made
        else:
            # The example has 9 pages and takes a hundred times as long as the small files.
            big = number % 100 == 0
            yield (
                "damaged",
                mutated(chance, seeds[0] if big else chance.choice(seeds[1:]), seeds, PDF_WORDS),
            )


_READABLE = ("a million pages", "a deep tree", "fonts without maps", "operators")


@cache
def _pdf_seeds() -> Sequence[bytes]:
    plain = pdfs.text_pdf([_LINES, "Another page."], header="The Report", footer="{n}")
    return (
        (_ROOT / "docs" / "example" / "report.pdf").read_bytes(),
        plain,
        pdfs.text_pdf(["One line."]),
        pdfs.ligature_pdf("ﬁne ﬂow"),
        pdfs.scanned_pdf("st"),
        pdfs.encrypted_pdf(pdfs.text_pdf(["Secret."]), ""),
        pdfs.pages_pdf([pdfs.GOOD_PAGE] * 2),
        *(grammar.KINDS[kind](random.Random(8)) for kind in _READABLE),
    )


def text_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    return _damaged(
        count, seed, [_TEXT.encode(), _TEXT.encode("utf-16"), _TEXT.encode("cp1252", "ignore")]
    )


def markdown_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    return _damaged(count, seed, [_MARKDOWN.encode(), (_MARKDOWN * 3).encode()])


def jsonl_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    lines = [
        {"id": "a", "text": _TEXT},
        {"text": _LINES, "summary": "Short.", "more": [1, {"a": None}]},
        {"id": 7, "text": "e\u0301 \ud800 \x1b[31m"},
    ]
    return _damaged(count, seed, ["\n".join(map(json.dumps, lines)).encode()])


def profile_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    return _damaged(
        count, seed, [path.read_bytes() for path in sorted((_ROOT / "profiles").glob("*.yaml"))]
    )


def _damaged(count: int, seed: int, seeds: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(seed)
    for _ in range(count):
        yield "damaged", mutated(chance, chance.choice(seeds), seeds, TEXT_WORDS)


CASES: dict[str, Callable[[int, int], Iterator[tuple[str, bytes]]]] = {
    "pdf": pdf_cases,
    "text": text_cases,
    "markdown": markdown_cases,
    "jsonl": jsonl_cases,
    "profile": profile_cases,
}
