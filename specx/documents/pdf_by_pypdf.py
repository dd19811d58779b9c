"""Read a PDF with pypdf, in the child process.

It serves where PDFium is missing, and files that PDFium cannot open.
"""

import gc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from specx.documents.child_worker import RefusedError, open_file, reason
from specx.documents.lines import Line, Look, ReadPage, Span, is_bold, is_mono, lines_of

INTERRUPTIBLE = True  # an exception ends its work
_MEGABYTE = 1_000_000
# Far above what the text of a page needs, far below what a bomb unpacks to.
_LIMITS = {
    "maximum_declared_stream_length": 75 * _MEGABYTE,
    "array_based_stream_maximum_output_length": 50 * _MEGABYTE,
    "zlib_maximum_output_length": 50 * _MEGABYTE,
    "lzw_maximum_output_length": 50 * _MEGABYTE,
    "run_length_maximum_output_length": 50 * _MEGABYTE,
    "brotli_maximum_output_length": 50 * _MEGABYTE,
    "stream_decoding_work_maximum_length": 150 * _MEGABYTE,
    "stream_parsing_work_maximum_count": 1_500_000,
    "xform_maximum_invocations_per_extraction": 1_000,
    "jbig2dec_binary": None,
    "disable_legacy_handling": True,
}
_BLANK_PAGE = 500  # bytes of drawing commands, about
_WIDEST_SPACE = 300  # thousandths of the letter size
_MOST_FONTS = 256  # kept in memory
_COLLECT_AFTER = 200_000  # new objects; pypdf's are seldom in cycles, and to look costs 7 %


# What pypdf tells a visitor of a page's text: the text, in which a line ends at a line break, the
# transformation matrix, the text matrix, the font's dictionary and the letter size.
Fragment = tuple[str, Sequence[float], Sequence[float], Mapping[str, Any] | None, float]


def open_pdf(request: Mapping[str, Any]) -> tuple[int, ReadPage]:
    """Open a file; return the number of its pages, and what reads one.

    Raises RefusedError where it cannot be opened.
    """
    import pypdf

    gc.set_threshold(_COLLECT_AFTER)
    pypdf.overwrite_configuration(**_known_limits(pypdf))
    _amend_fonts()
    pdf = _open(pypdf, open_file(request), request["passwords"])
    try:
        return len(pdf.pages), lambda number: _extract(pdf.pages[number - 1])
    except MemoryError:
        raise
    except Exception as error:
        raise RefusedError("damaged", reason=reason(error)) from error


def _known_limits(pypdf: Any) -> dict[str, Any]:
    """Return the limits that this version of pypdf knows."""
    configuration = pypdf.get_configuration()
    return {key: value for key, value in _LIMITS.items() if hasattr(configuration, key)}


def _amend_fonts() -> None:
    """Make pypdf read each font once, and bound the width that it takes for a space.

    pypdf reads a font anew for every page. It looks up the font's space by its code; in subset
    fonts that number any glyph 32 it finds a letter's width instead, and takes the gaps between
    words for kerning: the words of justified text then run together.
    """
    try:
        from pypdf.generic import _font

        original: Callable[..., Any] = _font.Font.from_font_resource
    except (ImportError, AttributeError):  # a pypdf built differently: usable, if worse
        return
    known: dict[int, tuple[Any, Any]] = {}  # by the identity of a font's dictionary, kept alive

    def bounded(dictionary: Any, *args: Any, **kwargs: Any) -> Any:
        if id(dictionary) not in known:
            font = original(dictionary, *args, **kwargs)
            font.space_width = min(font.space_width, _WIDEST_SPACE)
            if len(known) >= _MOST_FONTS:
                known.clear()
            known[id(dictionary)] = dictionary, font
        return known[id(dictionary)][1]

    _font.Font.from_font_resource = staticmethod(bounded)


def _open(pypdf: Any, stream: IO[bytes], passwords: Sequence[str]) -> Any:
    try:
        reader = pypdf.PdfReader(stream, strict=False)
        encrypted = reader.is_encrypted
        if encrypted and not any(reader.decrypt(password) for password in ["", *passwords]):
            raise RefusedError("password", tried=len(passwords))
    except (RefusedError, MemoryError):
        raise
    except pypdf.errors.DependencyError as error:
        raise RefusedError("cipher", reason=reason(error)) from error
    except Exception as error:
        raise RefusedError("damaged", reason=reason(error)) from error
    return reader


def _extract(page: Any) -> tuple[list[Line], bool]:
    fragments: list[Fragment] = []
    text = page.extract_text(visitor_text=lambda *seen: fragments.append(seen))
    seen_by_visitor = "".join(text for text, *_ in fragments)
    # pypdf mends right-to-left text behind the visitor's back; then only the text counts.
    placed = "".join(seen_by_visitor.split()) == "".join(text.split())
    lines = lines_of(rows_of(fragments)) if placed else [Line(line) for line in text.split("\n")]
    return lines, _has_image(page) or _is_drawn(page, text)


def rows_of(fragments: Iterable[Fragment]) -> list[list[Span]]:
    """Return the spans of each line of a page, in the order of the file."""
    rows: list[list[Span]] = [[]]
    for text, cm, tm, font, size in fragments:
        for index, line in enumerate(text.split("\n")):
            if index:
                rows.append([])
            if line:
                rows[-1].append(_span(line, cm, tm, font, size))
    return rows


def _span(
    text: str,
    cm: Sequence[float],
    tm: Sequence[float],
    font: Mapping[str, Any] | None,
    letter_size: float,
) -> Span:
    a, b, c, d, e, f = _product(tm, cm)
    angle = math.atan2(b, a)
    cos, sin = math.cos(angle), math.sin(angle)
    name = str((font or {}).get("/BaseFont", ""))
    look = Look(
        turn=round(angle / (math.pi / 2)) % 4,
        size=round(abs(letter_size) * math.hypot(c, d), 2),
        bold=is_bold(name),
        mono=is_mono(name),
    )
    text = text.replace("\x7f", "•")  # WinAnsiEncoding shows its unused codes so
    return Span(text, round(e * cos + f * sin, 1), round(f * cos - e * sin, 1), look)


def _product(m: Sequence[float], n: Sequence[float]) -> tuple[float, ...]:
    """Multiply text matrix and transformation matrix, each given as a PDF's six numbers."""
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
        m[4] * n[0] + m[5] * n[2] + n[4],
        m[4] * n[1] + m[5] * n[3] + n[5],
    )


def _has_image(page: Any) -> bool:
    """Return True if a scan may be on the page: an image, or a form, which may hold one."""
    try:
        objects = page["/Resources"]["/XObject"].values()
        return any(item.get_object().get("/Subtype") in ("/Image", "/Form") for item in objects)
    except MemoryError:
        raise
    except Exception:
        return False


def _is_drawn(page: Any, text: str) -> bool:
    """Return True if a page without text has enough on it to be letters drawn as outlines."""
    if text.strip():
        return False
    contents = page.get_contents()
    return contents is not None and len(contents.get_data()) > _BLANK_PAGE
