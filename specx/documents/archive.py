"""Look into documents that are zip archives: DOCX, EPUB and ODT. Runs in the child process."""

import io
import posixpath
import re
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
_CONTAINER = "META-INF/container.xml"
_SIGNS = ("mimetype", _CONTAINER, "[Content_Types].xml")  # files that lie at the top of a document
_PACKAGE = re.compile(rb"""\bfull-path\s*=\s*["']([^"']+)""")
_LINK = re.compile(rb"""(\bhref\s*=\s*["'])([^"']+)""")
_AT_TOP = "specx.opf"
_OTHERS = (  # what else a zip archive may be, by a part of its table of contents
    ("xl/", "a spreadsheet"),
    ("ppt/", "a presentation"),
)


class PandocInput(NamedTuple):
    """A document for pandoc to read. ``images``: the number of its pictures."""

    kind: str
    data: bytes
    images: int
    warnings: tuple[str, ...] = ()


def open_archive(data: bytes) -> PandocInput:
    """Return the text parts of the document in a zip archive, as an archive of their own.

    Raises RefusedError if it is damaged or none.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise RefusedError("damaged", reason="its zip archive is broken") from error
    except RuntimeError as error:  # a part that needs a password
        raise RefusedError("encrypted") from error


def _read(archive: zipfile.ZipFile) -> PandocInput:
    entries = archive.infolist()
    texts = [entry for entry in entries if entry.filename.lower().endswith(_TEXT_PARTS)]
    unpacked = sum(entry.file_size for entry in texts)
    if unpacked > _MOST_UNPACKED or len(entries) > _MOST_FILES:
        raise RefusedError("too-long", limit=f"{_MOST_UNPACKED // _MEGABYTE} MB of text")
    above = _folder_above(archive.namelist())
    parts = {entry.filename.removeprefix(above): archive.read(entry) for entry in texts}
    kind = _kind(parts, [name.removeprefix(above) for name in archive.namelist()])
    if _is_encrypted(kind, parts):
        raise RefusedError("encrypted")
    if kind == "epub":
        parts = _package_at_top(parts)
    images = sum(map(_is_picture, archive.namelist()))
    return PandocInput(kind, _packed(parts), images)


def _folder_above(names: list[str]) -> str:
    """Return the folder that a document lies in, with its slash, if it was packed with one.

    What systems add beside it (``__MACOSX/``, ``.DS_Store``) does not count.
    """
    tops = {name.partition("/")[:2] for name in names if not name.startswith(("__MACOSX/", "."))}
    if len(tops) != 1:
        return ""
    folder, slash = tops.pop()
    packed = any(f"{folder}/{sign}" in names for sign in _SIGNS)
    return folder + slash if packed else ""


def _kind(parts: dict[str, bytes], names: list[str]) -> str:
    declared = parts.get("mimetype", b"").strip()
    if declared in _MIMETYPES:
        return _MIMETYPES[declared]
    if b"oebps-package" in parts.get(_CONTAINER, b""):
        return "epub"  # some packers leave the declaration out
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


def _package_at_top(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Move an EPUB's list of chapters to the top if they lie beside its folder.

    pandoc finds no chapter by a path with ``../``.
    """
    named = _PACKAGE.search(parts.get(_CONTAINER, b""))
    place = named[1].decode("utf-8", "replace") if named else ""
    package = parts.get(place, b"")
    if named is None or b"../" not in package:
        return parts

    def from_top(link: re.Match[bytes]) -> bytes:
        path = posixpath.join(posixpath.dirname(place), link[2].decode("utf-8", "replace"))
        return link[1] + posixpath.normpath(path).encode()

    container = parts[_CONTAINER].replace(named[1], _AT_TOP.encode())
    return {**parts, _CONTAINER: container, _AT_TOP: _LINK.sub(from_top, package)}


def _is_picture(name: str) -> bool:
    return name.lower().endswith(_IMAGES) and "thumbnail" not in name.lower()


def _packed(parts: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return packed.getvalue()
