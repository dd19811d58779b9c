"""Collect English prose from the documentation that installed software brings along.

``python -m specx.training.corpus ROOT [ROOT …] --out corpus.jsonl.gz`` walks each root for HTML,
plain text and reStructuredText, keeps paragraphs that read as prose, drops those seen before, and
writes one JSON object per file: ``{"source": …, "paragraphs": […]}``. Nothing else is a source of
the embedded pair's text; what it is evaluated on must not be among the roots.
"""

import argparse
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from specx.documents.sentences import split_sentences

MIN_CHARACTERS, MAX_CHARACTERS = 60, 1500
GROUPED_CHARACTERS = 250  # the size to which unbroken text is grouped in documents/paragraphs.py
EXCLUDED = re.compile(r"debian-policy|debian-faq|debian-handbook|changelog|copyright|NEWS", re.I)
HTML_SUFFIXES = {".html", ".htm", ".xhtml", ".page", ".xml"}
TEXT_SUFFIXES = {".txt", ".rst", ".pod", ".md", ".utf8", ""}
ENGLISH = re.compile(r"\b(the|of|and|to|is|in|that|for|are|be|with|you|it|was|this)\b")
BLOCK_TAGS = {"p", "li", "dd", "td", "blockquote", "section", "div", "h1", "h2", "h3", "body"}
SKIPPED_TAGS = {"script", "style", "pre", "nav", "header", "footer", "title", "code_block"}


class _Blocks(HTMLParser):
    """The text of each block element of a page, in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._text: list[str] = []
        self._skipping = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self._skipping += tag in SKIPPED_TAGS
        if tag in BLOCK_TAGS:
            self.flush()

    def handle_endtag(self, tag: str) -> None:
        self._skipping -= tag in SKIPPED_TAGS and self._skipping > 0
        if tag in BLOCK_TAGS:
            self.flush()

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._text.append(data)

    def flush(self) -> None:
        self.blocks.append(" ".join("".join(self._text).split()))
        self._text.clear()


def _html_blocks(text: str) -> list[str]:
    parser = _Blocks()
    parser.feed(text)
    parser.flush()
    return parser.blocks


def _text_blocks(text: str) -> list[str]:
    text = re.sub(r"``?|\*\*?|:[a-z:]+:`([^`]*)`", r"\1", text)
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]


def is_prose(text: str) -> bool:
    """Whether a block reads as running English: sentences of mostly lower-case words."""
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        return False
    if not re.match(r"[A-Z“\"(]", text) or not re.search(r"[.!?][\"”’)]?$", text):
        return False
    if len(ENGLISH.findall(text)) < len(text) / 60:
        return False
    letters = sum(character.isalpha() or character == " " for character in text)
    words = text.split()
    plain = sum(bool(re.fullmatch(r"[(\"“]?[A-Za-z’'-]+[,.;:!?)\"”]*", word)) for word in words)
    return len(words) >= 9 and letters / len(text) > 0.92 and plain / len(words) > 0.85


def _group(sentences: Iterable[str]) -> Iterator[str]:
    """Group sentences into paragraphs of about 250 characters, as unbroken documents are."""
    block = ""
    for sentence in sentences:
        block = f"{block} {sentence}".strip()
        if len(block) >= GROUPED_CHARACTERS:
            yield block
            block = ""
    if len(block) >= MIN_CHARACTERS:
        yield block


def _files(root: Path) -> Iterator[tuple[Path, bool]]:
    """(file, whether it is HTML) below a root, in a fixed order."""
    for path in sorted(root.rglob("*")):
        inner = path.with_suffix("") if path.suffix == ".gz" else path
        if not path.is_file() or path.is_symlink() or EXCLUDED.search(str(path)):
            continue
        if inner.suffix in HTML_SUFFIXES:
            yield path, True
        elif inner.suffix in TEXT_SUFFIXES or re.fullmatch(r"\.\d\w*", inner.suffix):
            yield path, False


def _read(path: Path) -> str:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return "" if b"\0" in raw[:4096] else raw.decode("utf-8", errors="ignore")


def collect(roots: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """One record per file that has at least three prose paragraphs not seen before."""
    seen: set[bytes] = set()
    for root in roots:
        for path, html in _files(root):
            try:
                blocks = _html_blocks(_read(path)) if html else _text_blocks(_read(path))
            except (OSError, EOFError, AssertionError):
                continue
            fresh = []
            for block in filter(is_prose, blocks):
                digest = hashlib.blake2b(block.encode(), digest_size=8).digest()
                if digest not in seen:
                    seen.add(digest)
                    fresh.append(block)
            if len(fresh) < 3:
                continue
            # Every second file in the form that text without paragraph breaks takes in specx.
            if int(hashlib.blake2b(str(path).encode(), digest_size=1).hexdigest(), 16) % 2:
                fresh = list(_group(s for block in fresh for s in split_sentences(block)))
            yield {"source": str(path.relative_to(root.parent)), "paragraphs": fresh}


def read_corpus(path: Path) -> Iterator[dict[str, Any]]:
    """The records that :func:`collect` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    files = characters = 0
    with gzip.open(arguments.out, "wt", encoding="utf-8") as out:
        for record in collect(arguments.roots):
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            files += 1
            characters += sum(map(len, record["paragraphs"]))
    print(f"{files} files, {characters / 1e6:.1f} million characters -> {arguments.out}")


if __name__ == "__main__":
    main()
