"""Read a DOCX, EPUB, ODT or HTML in the child process (``child_worker``).

The request names ``path``, ``pandoc`` (the program) and ``kind``: ``html``, or null for a zip
archive, whose kind is found. Answers: ``{"format": kind, "warnings": [...]}``, then one
``{"text": ..., "kind": ..., "part": ...}`` for each paragraph, and
``{"end": true, "images": count}``.
"""

import codecs
import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from specx.documents.archive import PandocInput, open_archive
from specx.documents.child_worker import Answer, RefusedError, read_data
from specx.documents.pandoc import FURNITURE, Tree, paragraphs_of
from specx.documents.text import decode_text
from specx.errors import DocumentError

_MOST_CHARACTERS = 20_000_000
_GHC_OUT_OF_MEMORY = 251  # the exit status of a program compiled by GHC
_STYLES = {"docx": "docx+styles"}  # the contents of a DOCX are known by their styles
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096  # bytes


def serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    data = read_data(request)
    source = _page(data) if request["kind"] == "html" else open_archive(data)
    yield {"format": source.kind, "warnings": source.warnings}
    characters = 0
    try:
        tree = _parse(request["pandoc"], source)
        for paragraph in paragraphs_of(tree, titled=source.kind == "docx"):
            characters += len(paragraph.text)
            if characters > _MOST_CHARACTERS:
                raise RefusedError("too-long", limit=f"{_MOST_CHARACTERS:,} characters")
            yield {"text": paragraph.text, "kind": paragraph.kind, "part": paragraph.part}
    except RecursionError as error:
        raise RefusedError("damaged", reason="it is nested too deeply") from error
    yield {"end": True, "images": source.images}


def _page(data: bytes) -> PandocInput:
    text, warnings = _decode(data)
    page, images = _prepared(text)
    return PandocInput("html", page.encode("utf-8", "replace"), images, warnings)


def _decode(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode a web page: UTF-8 or UTF-16, else what it says of itself, else a guess."""
    declared = _CHARSET.search(data[:_CHARSET_WITHIN])
    try:
        if declared and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            codec = codecs.lookup(declared[1].decode("ascii", "replace"))
            # Browsers, too, read these two names as Windows-1252.
            encoding = "cp1252" if codec.name in ("iso8859-1", "ascii") else codec.name
            return data.decode(encoding), ()
    except (LookupError, UnicodeDecodeError):
        pass  # as wrong as declarations often are
    try:
        return decode_text(data, "the page")
    except DocumentError as error:
        raise RefusedError("no-text") from error


def _parse(pandoc: str, source: PandocInput) -> Tree:
    """Return pandoc's syntax tree. It reads no other file and inherits the limits."""
    reader = _STYLES.get(source.kind, source.kind)
    done = subprocess.run(
        [pandoc, "--sandbox", "--quiet", "--from", reader, "--to", "json"],
        input=source.data,
        capture_output=True,
        check=False,
    )
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        raise RefusedError("time")
    if done.returncode in (_GHC_OUT_OF_MEMORY, -getattr(signal, "SIGKILL", 9)):
        raise RefusedError("memory")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        raise RefusedError("damaged", reason=lines[0].strip().rstrip(".")[:120])
    tree: Tree = json.loads(done.stdout)
    return tree


# ---------------------------------------------------------------- web pages

_NOT_SHOWN = (
    "script, style, noscript, template, iframe, object, canvas, svg, button, select, textarea, "
    "input, [hidden], [aria-hidden='true'], [style*='display:none'], [style*='display: none'], "
    "[role='search']"
)
_FRAME = "nav, footer, aside, header, [role='navigation'], [role='banner'], [role='contentinfo']"
_NOTE = frozenset({"doc-footnote", "doc-endnote", "doc-endnotes", "note"})
# pandoc reads nothing else of a page with <main>, and does not see the role of an <aside>.
_UNKNOWN = re.compile(r"<(/?)(?:main|aside)(?=[\s>])")
_TEXT = frozenset({"main", "article"})  # what these hold is text, a header or an aside, too


def _prepared(text: str) -> tuple[str, int]:
    """Return a web page as pandoc is to read it, and the number of its pictures.

    It is repaired, without what is not shown. Its frame (navigation, header, footer) stands at its
    end, in divisions of the class FURNITURE.
    """
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    try:
        page = LexborHTMLParser(text)
    except SelectolaxError as error:  # any text is a page, so there was no room for it
        raise MemoryError from error
    for node in page.css(_NOT_SHOWN):
        node.decompose()
    if page.html is None:  # the parser says nothing when there is no room
        raise MemoryError
    images = len(page.css("img"))
    frame = [node for node in page.css(_FRAME) if _frames(node)]
    framed = {node.mem_id for node in frame}
    outer = [node for node in frame if not any(up.mem_id in framed for up in _above(node))]
    taken = [f'<div class="{FURNITURE}">{node.inner_html}</div>' for node in outer]
    for node in outer:
        node.remove()
    return "\n".join([_UNKNOWN.sub(r"<\1div", page.html or ""), *taken]), images


def _frames(node: Any) -> bool:
    """Return True for navigation, and for other parts of the frame outside the text."""
    if node.tag == "nav" or node.attributes.get("role") == "navigation":
        return True
    if node.attributes.get("role") in _NOTE or (node.tag == "header" and node.css_first("h1")):
        return False
    return not any(above.tag in _TEXT for above in _above(node))


def _above(node: Any) -> Iterator[Any]:
    """Yield the elements that a node stands in."""
    while (node := node.parent) is not None:
        yield node
