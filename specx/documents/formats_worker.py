"""Read a DOCX, EPUB, ODT, RTF, reST, HTML, mail or web archive in the child process.

The request names ``path``, ``pandoc`` (the program) and ``kind``, null for a zip archive, whose
kind is found. Answers: ``{"format": kind}``, then one
``{"text": ..., "kind": ..., "part": ...}`` for each paragraph, and
``{"end": true, "images": count, "warnings": [...]}``.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from specx.documents.archive import PandocInput, open_archive
from specx.documents.child_worker import Answer, RefusedError, read_data
from specx.documents.document import Paragraph
from specx.documents.mime import MailText, MimeMessage, looks_like_mime, open_message
from specx.documents.pandoc import FURNITURE, Tree, paragraphs_of
from specx.documents.plain import document_from_text
from specx.documents.text import decode_markup, decode_text
from specx.errors import DocumentError

_NO_TEXT = "A part of it is data and no text; it was not read."
_MOST_CHARACTERS = 20_000_000
_DEEPEST = 3  # documents in documents
_GHC_OUT_OF_MEMORY = 251  # the exit status of a program compiled by GHC
_STYLES = {"docx": "docx+styles"}  # the contents of a DOCX are known by their styles
_FEW_LETTERS, _SMALL_SHARE = 100, 0.03  # that a reader may lose without a word


def serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    try:
        reader = _Opener(request["pandoc"])
        kind, sources = reader.opened(read_data(request), request["kind"])
        yield {"format": kind}
        characters = 0
        for paragraph in reader.paragraphs(sources):
            characters += len(paragraph.text)
            if characters > _MOST_CHARACTERS:
                raise RefusedError("too-long", limit=f"{_MOST_CHARACTERS:,} characters")
            yield {"text": paragraph.text, "kind": paragraph.kind, "part": paragraph.part}
    except RecursionError as error:
        raise RefusedError("damaged", reason="it is nested too deeply") from error
    except DocumentError as error:
        raise RefusedError("unreadable", reason=str(error).removeprefix("it ")) from error
    yield {"end": True, "images": reader.images, "warnings": reader.warnings}


@dataclass
class _Opener:
    """Documents, and those in them, to paragraphs."""

    pandoc: str
    images: int = 0
    warnings: list[str] = field(default_factory=list)
    depth: int = 0

    def opened(
        self, data: bytes, kind: str | None
    ) -> tuple[str, Sequence[PandocInput | Paragraph]]:
        """Return the kind of a document, and what there is to read in it."""
        if kind == "html":
            return kind, [_page(data)]
        if kind == "mime":
            return self._message(open_message(data))
        if kind is None:
            source = open_archive(data)
            return source.kind, [source]
        data = decode_text(data, "it")[0].encode() if kind == "rst" else data
        return kind, [PandocInput(kind, data)]

    def _message(self, message: MimeMessage) -> tuple[str, Sequence[PandocInput | Paragraph]]:
        self.warnings += message.warnings
        pieces = list[PandocInput | Paragraph]()
        for each in message.pieces:
            try:
                pieces.append(each if isinstance(each, Paragraph) else _piece(each))
            except DocumentError:
                self.warnings.append(_NO_TEXT)
        return message.kind, pieces

    def paragraphs(self, sources: Sequence[PandocInput | Paragraph]) -> Iterator[Paragraph]:
        for source in sources:
            if isinstance(source, Paragraph):
                yield source
            else:
                yield from self._read(source)

    def _read(self, source: PandocInput) -> Iterator[Paragraph]:
        self.images += source.images
        self.warnings += source.warnings
        letters = 0
        for paragraph in self._own(source):
            keys = [key for key in source.chunks if key in paragraph.text]
            text = reduce(lambda text, key: text.replace(key, ""), keys, paragraph.text)
            letters += sum(map(str.isalnum, text))
            if any(map(str.isalnum, text)) or not keys:
                yield replace(paragraph, text=text)
            for key in keys:
                yield from self._inside(source.chunks[key])
        lost = source.letters - letters
        if lost > max(_FEW_LETTERS, _SMALL_SHARE * source.letters):
            share = 100 * lost / source.letters
            self.warnings.append(f"About {share:.0f} % of its letters were not read.")

    def _own(self, source: PandocInput) -> Iterator[Paragraph]:
        if source.kind == "plain":
            try:
                document = document_from_text(source.data.decode(), "it", "text")
                yield from (*document.paragraphs, *document.furniture)
            except DocumentError:
                self.warnings.append(_NO_TEXT)
            return
        yield from paragraphs_of(_parse(self.pandoc, source), titled=source.kind == "docx")

    def _inside(self, data: bytes) -> Iterator[Paragraph]:
        """Yield the paragraphs of a document in a DOCX; one that cannot be read costs a warning."""
        self.depth += 1
        try:
            if self.depth <= _DEEPEST and data.strip():
                yield from self.paragraphs(self.opened(data, _kind(data))[1])
        except (RefusedError, DocumentError):
            self.warnings.append("A document that is part of it could not be read.")
        finally:
            self.depth -= 1


def _kind(data: bytes) -> str | None:
    """Return the kind of a document in a document."""
    if data.startswith(b"PK"):
        return None
    if data.startswith(b"{\\rtf"):
        return "rtf"
    return "mime" if looks_like_mime(data) else "html"


def _piece(piece: MailText) -> PandocInput:
    if piece.page:
        return _page(piece.data, piece.label)
    text, warnings = decode_markup(piece.data, "it", piece.label)
    return PandocInput("plain", text.encode("utf-8", "replace"), warnings=warnings)


def _page(data: bytes, label: str = "") -> PandocInput:
    try:
        text, warnings = decode_markup(data, "the page", label)
    except DocumentError as error:
        raise RefusedError("no-text") from error
    page, images = _prepared(text)
    return PandocInput("html", page.encode("utf-8", "replace"), images, warnings)


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
# Divisions that pages name so, and those that are mostly links.
_NAMED_FRAME = re.compile(
    r"(?:^|[-_ ])(?:cookies?|gdpr|newsletter-?signup|breadcrumbs?|pagination|editsection"
    r"|skip-?(?:link|nav|to)\w*)(?=$|[-_ ])",
    re.IGNORECASE,
)
_NAMED = "div[class], div[id], section[class], section[id], aside, span[class], ul[class], ul[id]"
_LINKS = re.compile(
    r"(?:^|[-_ ])(?:related|share|social|sidebar|menu|nav\w*|links|toolbar|tags)(?=$|[-_ ])", re.I
)
_MOST_LINKS = 0.7  # of the letters
_FEWEST_LINKS = 2
_LARGE_FRAME = 0.25  # of a page's letters
_NOTE = frozenset({"doc-footnote", "doc-endnote", "doc-endnotes", "note"})
# pandoc reads nothing else of a page with <main>, and does not see the role of an <aside>.
_UNKNOWN = re.compile(r"<(/?)(?:main|aside)(?=[\s>])")
_TEXT = frozenset({"main", "article"})  # what these hold is text, a header or an aside, too


def _prepared(text: str) -> tuple[str, int]:
    """Return a web page as pandoc is to read it, and the number of its pictures.

    It is repaired, without what is not shown. Its frame (navigation, header, footer) stands at its
    end, in divisions of the class FURNITURE. Raises RefusedError for a page without text of its
    own.
    """
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    try:
        page = LexborHTMLParser(text)
    except SelectolaxError as error:  # any text is a page, so there was no room for it
        raise MemoryError from error
    scripts = len(page.css("script"))
    if frames := page.css("frameset frame[src]"):
        raise RefusedError("frames", files=[str(each.attributes["src"]) for each in frames[:5]])
    for node in page.css(_NOT_SHOWN):
        node.decompose()
    if page.html is None:  # the parser says nothing when there is no room
        raise MemoryError
    images = len(page.css("img"))
    whole = _letters(page.body.text() if page.body else "")
    if scripts and not whole and not images:
        raise RefusedError("scripts")
    frame = {node.mem_id: node for node in page.css(_FRAME) if _frames(node)}
    named = [node for node in page.css(_NAMED) if _is_named_frame(node, whole)]
    frame |= {node.mem_id: node for node in named}
    outer = [node for node in frame.values() if not any(up.mem_id in frame for up in _above(node))]
    taken = [f'<div class="{FURNITURE}">{node.inner_html}</div>' for node in outer]
    for node in outer:
        node.remove()
    return "\n".join([_UNKNOWN.sub(r"<\1div", page.html or ""), *taken]), images


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _is_named_frame(node: Any, whole: int) -> bool:
    """Return True for a notice about cookies and the like, and for lists of links to elsewhere."""
    names = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
    letters = _letters(node.text())
    if letters > _LARGE_FRAME * whole or node.css_first("h1"):
        return False
    if _NAMED_FRAME.search(names):
        return True
    links = [each.text() for each in node.css("a[href]:not([href^='#'])")]
    linked = len(links) >= _FEWEST_LINKS and sum(map(_letters, links)) > _MOST_LINKS * letters
    return linked and (node.tag == "aside" or _LINKS.search(names) is not None)


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
