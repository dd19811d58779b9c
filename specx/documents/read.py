"""The entry of this room: from a path to a Document."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specx.documents.child import ChildRequest
from specx.documents.discover import (
    MARKDOWN_ENDINGS,
    STDIN,
    TEXT_ENDINGS,
    read_bytes,
    read_stdin,
    require_file,
    shown_name,
)
from specx.documents.document import Document, Kind, Paragraph
from specx.documents.formats import (
    FORMAT_ENDINGS,
    ZIP_HEADER,
    is_page,
    looks_like_page,
    read_format,
    wrongly_named,
)
from specx.documents.headings import is_caption
from specx.documents.jsonl import LineError, parse_jsonl, require_documents
from specx.documents.pdf import read_pdf
from specx.documents.pdf_reading import PdfRequest, parse_pages
from specx.documents.plain import document_from_text
from specx.documents.prose import without_data
from specx.documents.sections import mark_parts
from specx.documents.text import decode_text
from specx.errors import DocumentError, UsageError

PASSWORD_VARIABLE = "SPECX_PDF_PASSWORD"
_PDF_HEADER = b"%PDF-"
_HEADER_WITHIN = 1024  # bytes: readers accept some junk in front of the header


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading. ``pages`` is written as ``1-10,15``; the limits hold for each file.

    ``ocr``: recognize the text of scanned pages. ``everything``: licences, contents, indexes and
    lists of references are read as body, too. ``field``: the key of JSON lines that holds the text;
    if it is given, stdin is read as JSON lines.
    """

    password: str | None = field(default=None, repr=False)
    pages: str | None = None
    ocr: bool = False
    everything: bool = False
    field: str | None = None
    time_limit_s: float = 120
    memory_limit_bytes: int = 1536 * 2**20


def read_document(source: str, options: ReadOptions | None = None) -> Document:
    """Read one document; ``source`` is a path, or ``-`` for stdin, which is then called ``stdin``.

    Raises DocumentError when it cannot be read or has no text, UsageError when the options do not
    fit it. A JSONL file must hold exactly one document here; see ``read_documents``.
    """
    documents = require_documents(read_documents(source, options))
    if len(documents) > 1:
        raise DocumentError(
            f"{source} holds {len(documents)} documents, where one is expected; split it"
        )
    return documents[0]


def read_documents(source: str, options: ReadOptions | None = None) -> list[Document | LineError]:
    """Read all documents of ``source``: one, or one for each line of a JSONL file.

    A bad line of such a file costs no other one: its error stands in its place. Raises as
    ``read_document`` does.
    """
    options = options or ReadOptions()
    read = _read(source, options)
    return [_finished(each, options) if isinstance(each, Document) else each for each in read]


def _read(source: str, options: ReadOptions) -> list[Document | LineError]:
    ranges = parse_pages(options.pages) if options.pages is not None else None
    given = _open(source)
    if _PDF_HEADER in given.head[:_HEADER_WITHIN]:
        request = PdfRequest(
            **_limited(given, options),
            passwords=_passwords(options),
            ranges=ranges,
            ocr=options.ocr,
        )
        return [read_pdf(request)]
    if ranges is not None:
        raise UsageError(f"--pages works only for PDF files, and {given.name} is none")
    if given.ending == ".pdf" and given.head.strip():
        raise DocumentError(
            f"{given.name} is named like a PDF and is none: its header is missing; "
            "check the file, or rename it if it is text"
        )
    if given.head.startswith(ZIP_HEADER) or _is_page(given):
        advice = "split it, or save a part of it as a file of its own"
        child = ChildRequest(**_limited(given, options), reader="reader", advice=advice)
        return [read_format(child, page=_is_page(given))]
    data = given.everything()
    if given.ending in FORMAT_ENDINGS and data.strip():
        raise wrongly_named(given.name, given.ending, data)
    if given.ending == ".jsonl" or (source == STDIN and options.field is not None):
        return parse_jsonl(data, given.name, options.field or "text")
    text, warnings = decode_text(data, given.name)
    if looks_like_page(given.head):
        warnings += ("It looks like a web page; with the ending .html its tags are left out.",)
    kind: Kind = "markdown" if given.ending in MARKDOWN_ENDINGS else "text"
    return [document_from_text(text, given.name, kind, warnings)]


def _finished(document: Document, options: ReadOptions) -> Document:
    """Return ``document`` with the parts of its paragraphs, or as if all of it were body.

    What forms no words is left out of every format.
    """
    document = without_data(document)
    paragraphs = tuple(map(_captioned, document.paragraphs))
    if options.everything:
        paragraphs = tuple(replace(paragraph, part="body") for paragraph in paragraphs)
    elif document.kind != "pdf":  # a PDF is marked where the levels of its headings are known
        paragraphs = mark_parts(paragraphs)
    return replace(document, paragraphs=paragraphs, everything=options.everything)


def _captioned(paragraph: Paragraph) -> Paragraph:
    """Return a paragraph as a caption if it begins as one; formats mark few of them."""
    asked = paragraph.kind in ("text", "item") and is_caption(paragraph.text)
    return replace(paragraph, kind="caption") if asked else paragraph


@dataclass(frozen=True, kw_only=True)
class _Input:
    """An opened source.

    ``path`` is None for a source that can be read only once (stdin, a pipe); then ``head`` is all.
    """

    name: str
    head: bytes
    ending: str = ""
    path: Path | None = None

    def everything(self) -> bytes:
        return self.head if self.path is None else read_bytes(self.path)


def _open(source: str) -> _Input:
    if source == STDIN:
        return _Input(name=shown_name(source), head=read_stdin())
    path = require_file(source)
    ending = path.suffix.lower()
    if path.is_file():
        head = read_bytes(path, _HEADER_WITHIN)
        return _Input(name=source, head=head, ending=ending, path=path)
    return _Input(name=source, head=read_bytes(path), ending=ending)


def _is_page(given: _Input) -> bool:
    """Return True for a web page. A name that says plain text is believed."""
    named = is_page(given.ending) and not given.head.startswith(ZIP_HEADER)
    return named or (given.ending not in TEXT_ENDINGS and looks_like_page(given.head))


def _limited(given: _Input, options: ReadOptions) -> dict[str, Any]:
    """Return what every request to a child process says: which file, and the limits."""
    return {
        "name": given.name,
        "path": given.path,
        "data": given.head if given.path is None else b"",
        "time_limit_s": options.time_limit_s,
        "memory_limit_bytes": options.memory_limit_bytes,
    }


def _passwords(options: ReadOptions) -> tuple[str, ...]:
    """Return the passwords to try after the empty one."""
    given = (options.password, os.environ.get(PASSWORD_VARIABLE))
    return tuple(dict.fromkeys(password for password in given if password))
