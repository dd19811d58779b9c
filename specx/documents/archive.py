"""Look into documents that are zip archives: DOCX, EPUB and ODT. Runs in the child process."""

import io
import zipfile
import zlib
from typing import NamedTuple

from specx.documents.child_worker import RefusedError

_MEGABYTE = 1_000_000
_MOST_UNPACKED = 100 * _MEGABYTE  # of text parts together; pictures are not unpacked
_MOST_FILES = 20_000
_TEXT_PARTS = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", "mimetype")
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".emf", ".wmf", ".tif", ".tiff", ".webp")
_MIMETYPES = {
    b"application/epub+zip": "epub",
    b"application/vnd.oasis.opendocument.text": "odt",
    b"application/vnd.oasis.opendocument.text-template": "odt",
}
_OTHERS = (  # what else a zip archive may be, by a part of its table of contents
    ("xl/", "a spreadsheet"),
    ("ppt/", "a presentation"),
)


class Archive(NamedTuple):
    """The text parts of a document as an archive of their own, and the number of its pictures."""

    kind: str
    data: bytes
    images: int


def open_archive(data: bytes) -> Archive:
    """Return the document in a zip archive. Raises RefusedError if it is damaged or none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise RefusedError("damaged", reason="its zip archive is broken") from error
    except RuntimeError as error:  # a part that needs a password
        raise RefusedError("encrypted") from error


def _read(archive: zipfile.ZipFile) -> Archive:
    entries = archive.infolist()
    texts = [entry for entry in entries if entry.filename.lower().endswith(_TEXT_PARTS)]
    unpacked = sum(entry.file_size for entry in texts)
    if unpacked > _MOST_UNPACKED or len(entries) > _MOST_FILES:
        raise RefusedError("too-long", limit=f"{_MOST_UNPACKED // _MEGABYTE} MB of text")
    parts = {entry.filename: archive.read(entry) for entry in texts}
    kind = _kind(parts, archive.namelist())
    if _is_encrypted(kind, parts):
        raise RefusedError("encrypted")
    images = sum(map(_is_picture, archive.namelist()))
    return Archive(kind, _packed(parts), images)


def _kind(parts: dict[str, bytes], names: list[str]) -> str:
    declared = parts.get("mimetype", b"").strip()
    if declared in _MIMETYPES:
        return _MIMETYPES[declared]
    if b"wordprocessingml" in parts.get("[Content_Types].xml", b""):
        return "docx"
    if declared.startswith(b"application/vnd.oasis.opendocument."):
        raise RefusedError("unknown", what="an OpenDocument file that is no text")
    for folder, kind in _OTHERS:
        if "[Content_Types].xml" in parts and any(name.startswith(folder) for name in names):
            raise RefusedError("unknown", what=kind)
    raise RefusedError("unknown", what="a zip archive that holds no document")


def _is_encrypted(kind: str, parts: dict[str, bytes]) -> bool:
    if kind == "odt":
        return b"encryption-data" in parts.get("META-INF/manifest.xml", b"")
    # In an EPUB, fonts alone may be scrambled, which hides no text.
    listed = parts.get("META-INF/encryption.xml", b"") if kind == "epub" else b""
    return b"html" in listed.replace(b"http://www.w3.org/1999/xhtml", b"")


def _is_picture(name: str) -> bool:
    return name.lower().endswith(_IMAGES) and "thumbnail" not in name.lower()


def _packed(parts: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return packed.getvalue()
