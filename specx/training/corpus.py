"""Collect English prose from the documentation and books in installed packages.

``python -m specx.training.corpus ROOT [ROOT …] --out corpus.jsonl.gz`` takes one root for each
package and searches it for HTML, plain text, reStructuredText, dictionaries (``.dict.dz``) and
SWORD books. It keeps paragraphs that read as prose, drops repeated ones, and writes one JSON object
per file: ``{"source": …, "held_out": …, "paragraphs": […]}``; long files become several. The
embedded pair has no other source of text. Evaluation texts must not be among the roots.
"""

import argparse
import gzip
import hashlib
import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from specx.documents.sentences import split_sentences

MIN_CHARACTERS, MAX_CHARACTERS = 60, 1500
GROUPED_CHARACTERS = 250  # the size to which unbroken text is grouped in documents/paragraphs.py
RECORD_PARAGRAPHS = 400  # a dictionary is one file: it is held out, and sampled, in slices
PACKAGE_CHARACTERS = 8_000_000  # a package counts no more than this, however large it is
HELD_OUT_EVERY = 50  # one record of 50
EXCLUDED = re.compile(r"debian-policy|debian-faq|debian-handbook|changelog|copyright|NEWS", re.I)
HTML_SUFFIXES = {".html", ".htm", ".xhtml", ".page", ".xml", ".docbook", ".utf8"}
TEXT_SUFFIXES = {".txt", ".rst", ".pod", ".md", ""}
NUMBERED_SUFFIX = re.compile(r"\.(\d\w*|info(-\d+)?)")  # manual pages and Info files
BOOK_SUFFIXES = {".bzz", ".czz"}  # SWORD modules, compressed by book or by chapter
ENGLISH = re.compile(r"\b(the|of|and|to|is|in|that|for|are|be|with|you|it|was|this)\b")
PLAIN_WORD = re.compile(r"[(\"“‘']*([^\W\d_]+([’'-][^\W\d_]+)*|\$?\d[\d.,]*%?)[’'\",.;:!?)”]*")
BLOCK_TAGS = {
    *("p", "li", "dd", "td", "blockquote", "section", "div", "h1", "h2", "h3", "body"),
    *("para", "item", "chapter"),  # DocBook, OSIS
}
SKIPPED_TAGS = {
    *("script", "style", "pre", "nav", "header", "footer", "title", "code_block"),
    *("programlisting", "screen"),
}


def draw(purpose: str, name: str, sides: int) -> int:
    """Return a random number below ``sides``, always the same for a purpose and a name."""
    digest = hashlib.blake2b(f"{purpose} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % sides


class _Blocks(HTMLParser):
    """Collects the text of each block element of a page, in order."""

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
    """Split text at empty lines, and at the ``%`` lines between the items of a collection."""
    text = re.sub(r"``?|\*\*?|:[a-z:]+:`([^`]*)`", r"\1", text)
    return [" ".join(block.split()) for block in re.split(r"\n(?:\s*\n|%+\n)", text)]


def _dictionary_blocks(text: str) -> list[str]:
    """Split a dictionary into definitions and quotations.

    Sense numbers, braces of links and editors' marks are dropped.
    """
    text = re.sub(r"\[[^\]]*(?:Webster|WordNet|PJC)[^\]]*\]|[{}]", "", text)
    return [re.sub(r"^(?:\d+\.|<[^>]*>) ", "", block) for block in _text_blocks(text)]


def is_prose(text: str) -> bool:
    """Return True for running English: sentences of mostly lower-case words."""
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        return False
    if not re.match(r"[A-Z“\"(]", text) or not re.search(r"[.!?][\"”’)]?$", text):
        return False
    if len(ENGLISH.findall(text)) < len(text) / 60:
        return False
    readable = sum(character.isalnum() or character == " " for character in text)
    words = text.split()
    plain = sum(bool(PLAIN_WORD.fullmatch(word)) for word in words)
    return len(words) >= 9 and readable / len(text) > 0.92 and plain / len(words) > 0.85


def _group(sentences: Iterable[str], characters: int) -> Iterator[str]:
    """Group sentences into paragraphs of ``characters`` or a little more."""
    block = ""
    for sentence in sentences:
        block = f"{block} {sentence}".strip()
        if len(block) >= characters:
            yield block
            block = ""
    if len(block) >= MIN_CHARACTERS:
        yield block


def _paragraphs(blocks: Iterable[str], seen: set[bytes]) -> Iterator[str]:
    """Yield new blocks of prose, dividing long ones. ``seen``: hashes of all yielded blocks."""
    for block in blocks:
        long = len(block) > MAX_CHARACTERS
        pieces = _group(split_sentences(block), MAX_CHARACTERS // 2) if long else [block]
        for piece in filter(is_prose, pieces):
            digest = hashlib.blake2b(piece.encode(), digest_size=8).digest()
            if digest not in seen:
                seen.add(digest)
                yield piece


def _reader(path: Path) -> Callable[[str], list[str]] | None:
    """Return the function that splits this file's text into blocks; None if it is not text."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix in HTML_SUFFIXES | BOOK_SUFFIXES:
        return _html_blocks
    if suffix == ".dz":
        return _dictionary_blocks
    if suffix in TEXT_SUFFIXES or NUMBERED_SUFFIX.fullmatch(suffix):
        return _text_blocks
    return None


def _read(path: Path) -> str:
    if path.suffix in BOOK_SUFFIXES:
        raw = _read_book(path)
    else:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix in (".gz", ".dz") else raw
    return "" if b"\0" in raw[:4096] else raw.decode("utf-8", errors="ignore")


def _read_book(path: Path) -> bytes:
    """Return the marked-up text of a SWORD module.

    The accompanying file with a name ending in ``s`` lists the blocks as 32-bit numbers: offset,
    compressed size and original size.
    """
    raw = path.read_bytes()
    blocks = struct.iter_unpack("<III", path.with_suffix(f"{path.suffix[:-1]}s").read_bytes())
    return b"\n".join(zlib.decompress(raw[start : start + size]) for start, size, _ in blocks)


def _sources(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, blocks) of each readable file below a root.

    The order is shuffled with a fixed seed, so that the part taken of a large package
    (:data:`PACKAGE_CHARACTERS`) is a mix.
    """
    names = {str(path.relative_to(root.parent)): path for path in root.rglob("*")}
    for name in sorted(names, key=lambda name: (draw("order", name, 2**32), name)):
        path = names[name]
        reader = _reader(path)
        if reader is None or not path.is_file() or path.is_symlink() or EXCLUDED.search(name):
            continue
        try:
            yield name, reader(_read(path))
        except (OSError, EOFError, AssertionError, struct.error, zlib.error):
            continue


def _records(root: Path, seen: set[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the records of one package: files of at least three paragraphs, long ones in slices."""
    for name, blocks in _sources(root):
        paragraphs = list(_paragraphs(blocks, seen))
        if len(paragraphs) < 3:
            continue
        for start in range(0, len(paragraphs), RECORD_PARAGRAPHS):
            part = paragraphs[start : start + RECORD_PARAGRAPHS]
            source = name if len(part) == len(paragraphs) else f"{name}#{start}"
            # Every second one in the form that text without paragraph breaks takes in specx.
            grouped = draw("grouped", source, 2) == 0
            sentences = (s for block in part for s in split_sentences(block))
            yield {
                "source": source,
                "held_out": draw("held out", source, HELD_OUT_EVERY) == 0,
                "paragraphs": list(_group(sentences, GROUPED_CHARACTERS) if grouped else part),
            }


def package(record: dict[str, Any]) -> str:
    """Return the package of a record: the first part of its source."""
    return str(record["source"]).split("/", 1)[0]


def count_characters(record: dict[str, Any]) -> int:
    return sum(map(len, record["paragraphs"]))


def collect(roots: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of each package, until it has :data:`PACKAGE_CHARACTERS`."""
    seen: set[bytes] = set()
    for root in roots:
        characters = 0
        for record in _records(root, seen):
            yield record
            characters += count_characters(record)
            if characters >= PACKAGE_CHARACTERS:
                break


def read_corpus(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that :func:`collect` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    characters: Counter[str] = Counter()
    held_out = 0
    with gzip.open(arguments.out, "wt", encoding="utf-8") as out:
        for record in collect(arguments.roots):
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            characters[package(record)] += count_characters(record)
            held_out += count_characters(record) * record["held_out"]
    for name, count in characters.most_common():
        print(f"{name} {count / 1e6:.2f}")
    print(
        f"{characters.total() / 1e6:.1f} million characters, {held_out / 1e6:.1f} of them held out"
        f" -> {arguments.out}"
    )


if __name__ == "__main__":
    main()
