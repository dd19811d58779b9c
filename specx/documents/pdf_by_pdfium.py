"""Read a PDF with PDFium, in the child process.

PDFium decides which characters are words and lines. Its text objects say where they stand and in
which font. Its C code cannot be interrupted: what takes too long ends the process, as a crash does.
"""

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import pypdfium2_raw.bindings as pdfium

from specx.documents.child_worker import RefusedError, read_data
from specx.documents.lines import (
    ASLANT,
    MIRRORED,
    Line,
    Look,
    ReadPage,
    TextRun,
    is_bold,
    is_mono,
    lines_of,
)
from specx.documents.pdf_rows import HYPHEN, rows_of

INTERRUPTIBLE = False  # C code runs to the end, so a timer has to end the process
_DRAWN_PATHS = 20  # on a page without text: more than a frame or a rule, fewer than letters
_NESTED = 8  # forms within forms that are looked into
_FIXED_PITCH = 1  # a flag of fonts
_SHORT = 6  # characters
_LINE_LENGTH = 200  # characters
_LOOSE = 0.15  # letter sizes; a gap inside a word that kerning does not explain
_ASLANT = 0.1  # quarter turns from the nearest that a scan is not off
_UPWARD = {0, 3, MIRRORED + 1, MIRRORED + 2, ASLANT}  # turns whose lines stack along an axis

# A line; PDFium puts no other end behind a hyphen that divides a word.
_LINE = re.compile(rf"(?:[^\r\n{HYPHEN}]|\r(?!\n))+{HYPHEN}?")
_WORD = re.compile(r"[^ ]+")

# Accents that may be drawn over the letter behind them, as with TeX's old fonts (OT1), and their
# codes there, which are what a font has that names no characters.
_COMBINING = dict(
    zip(
        "`^~´ˆ˜¨˘ˇ¯˙˚¸",
        "\u0300\u0302\u0303\u0301\u0302\u0303\u0308\u0306\u030c\u0304\u0307\u030a\u0327",
        strict=True,
    )
) | dict(zip("\x12\x13\x14\x17\x18\x7f", "\u0300\u0301\u030c\u030a\u0327\u0308", strict=True))
_ACCENT = re.compile(
    r"([`^~\x12\x13\x14\x17\x18\x7f](?= ?[^\W\d_])|(?P<sign>[´ˆ˜¨˘ˇ¯˙˚¸])) ?[^\W\d_]?"
)
_DOTLESS = {"ı": "i", "ȷ": "j"}
_FIRST_MARK = 0x100000  # of characters that no text has

_Handle = ctypes.c_void_p
_Int = ctypes.c_int


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of PDFium that takes handles as plain numbers, which is much faster."""
    address = ctypes.cast(getattr(pdfium, name), _Handle).value or 0
    return ctypes.CFUNCTYPE(result, *arguments)(address)


_text_object = _function("FPDFText_GetTextObject", _Handle, _Handle, _Int)
_loose_box = _function("FPDFText_GetLooseCharBox", _Int, _Handle, _Int, _Handle)
_origin = _function("FPDFText_GetCharOrigin", _Int, _Handle, _Int, _Handle, _Handle)
_character = _function("FPDFText_GetUnicode", ctypes.c_uint, _Handle, _Int)
_matrix = _function("FPDFText_GetMatrix", _Int, _Handle, _Int, _Handle)
_font_size = _function("FPDFText_GetFontSize", ctypes.c_double, _Handle, _Int)
_object_font = _function("FPDFTextObj_GetFont", _Handle, _Handle)
_is_hyphen = _function("FPDFText_IsHyphen", _Int, _Handle, _Int)
_page_object = _function("FPDFPage_GetObject", _Handle, _Handle, _Int)
_form_object = _function("FPDFFormObj_GetObject", _Handle, _Handle, ctypes.c_ulong)
_kind = _function("FPDFPageObj_GetType", _Int, _Handle)
_object_bounds = _function("FPDFPageObj_GetBounds", _Int, *5 * [_Handle])
_PATH, _FORM = pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_FORM


def open_pdf(request: Mapping[str, Any]) -> tuple[int, ReadPage]:
    """Open a file; return the number of its pages, and what reads one.

    Raises RefusedError where it cannot be opened.
    """
    pdfium.FPDF_InitLibrary()
    data = read_data(request)
    for password in ["", *request["passwords"]]:
        document = pdfium.FPDF_LoadMemDocument64(data, len(data), password.encode() or None)
        if document:
            return pdfium.FPDF_GetPageCount(document), partial(read_page, (document, data))
        error = pdfium.FPDF_GetLastError()
        if error != pdfium.FPDF_ERR_PASSWORD:
            break
    if error == pdfium.FPDF_ERR_PASSWORD:
        raise RefusedError("password", tried=len(request["passwords"]))
    if error == pdfium.FPDF_ERR_SECURITY:
        raise RefusedError("cipher", reason="unknown to PDFium")
    raise RefusedError("damaged", reason="its structure is broken")


def read_page(opened: tuple[Any, bytes], number: int) -> tuple[list[Line], bool]:
    """Read a page, as ``ReadPage`` does. ``opened``: a document, and the data PDFium reads from."""
    document, _ = opened
    with _page(document, number) as page:
        text = pdfium.FPDFText_LoadPage(page)
        try:
            objects = list(_objects(page))
            rules = map(_bounds, (each for each, kind in objects if kind == _PATH))
            lines = lines_of(rows_of(_PageText(text).runs(), rules)) if text else []
        finally:
            pdfium.FPDFText_ClosePage(text)
        kinds = Counter(kind for _, kind in objects)
    empty = not any(line.text.strip() for line in lines)
    drawn = empty and kinds[_PATH] > _DRAWN_PATHS
    return lines, drawn or bool(kinds[pdfium.FPDF_PAGEOBJ_IMAGE])


@contextmanager
def _page(document: Any, number: int) -> Iterator[Any]:
    page = pdfium.FPDF_LoadPage(document, number - 1)
    if not page:
        raise ValueError("it is damaged")
    try:
        yield page
    finally:
        pdfium.FPDF_ClosePage(page)


def _objects(page: Any) -> Iterator[tuple[int, int]]:
    """Yield each object of a page, and those in forms, with its kind."""
    handle = _number(page)
    count = max(0, pdfium.FPDFPage_CountObjects(page))
    objects: Iterator[int] = (_page_object(handle, n) for n in range(count))
    for _ in range(_NESTED):
        forms = []
        for each in objects:
            kind = _kind(each)
            yield each, kind
            if kind == _FORM:
                forms.append(each)
        objects = chain.from_iterable(map(_in_form, forms))


def _bounds(path: int) -> tuple[float, float, float, float]:
    """Return left, bottom, right and top of a path, in points; of one in a form, in its own."""
    sides = [ctypes.c_float() for _ in range(4)]
    _object_bounds(path, *map(ctypes.byref, sides))
    left, bottom, right, top = (side.value for side in sides)
    return left, bottom, right, top


def _in_form(form: int) -> Iterator[int]:
    count = pdfium.FPDFFormObj_CountObjects(ctypes.cast(form, pdfium.FPDF_PAGEOBJECT))
    return (_form_object(form, n) for n in range(max(0, count)))


def _number(handle: Any) -> int:
    return ctypes.cast(handle, _Handle).value or 0


def _accented(letter: str, accent: str) -> str:
    """Return a letter with its accent, as one character where there is one; nothing if none."""
    if not letter.isalpha():
        return ""
    return unicodedata.normalize("NFC", _DOTLESS.get(letter, letter) + _COMBINING[accent])


class _PageText:
    """The characters of a page, as PDFium puts them in order."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._handle = _number(text)
        self._box = pdfium.FS_RECTF()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._matrix = pdfium.FS_MATRIX()
        self._faces: dict[int | None, tuple[bool, bool]] = {}
        self._looks: dict[tuple[int | None, float, float, float, float, float], Look] = {}
        self._marks: dict[int, str] = {}
        self._characters = self._read()
        self._compose()

    def _read(self) -> str:
        """Return the characters, each in the place of its number."""
        count = max(0, pdfium.FPDFText_CountChars(self._text))
        units = (ctypes.c_ushort * (count + 1))()
        written = pdfium.FPDFText_GetText(self._text, 0, count, units)
        text = bytes(units)[: 2 * max(0, written - 1)].decode("utf-16-le", "replace")
        # Those that mean nothing are no text, but have a number all the same.
        return text if len(text) == count else "".join(map(self._one, range(count)))

    def _one(self, number: int) -> str:
        if _is_hyphen(self._handle, number) == 1:
            return HYPHEN
        code = _character(self._handle, number)
        return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\0"

    def _compose(self) -> None:
        """Join each accent that stands above or below a letter with that letter."""
        characters = list(self._characters)
        for found in _ACCENT.finditer(self._characters):
            accent = found.start()
            # One on a capital stands higher, so that PDFium may put it at the end of the line.
            earlier = range(max(0, accent - _LINE_LENGTH), accent) if found["sign"] else ()
            for letter in chain(range(accent + 1, found.end()), reversed(earlier)):
                whole = _accented(characters[letter], found[1])
                # What may be no accent at all makes no letters that no language has.
                known = found["sign"] or len(whole) == 1
                if whole and known and self._is_over(accent, letter):
                    characters[letter], characters[accent] = self._mark(whole), self._mark("")
                    break
        self._characters = "".join(characters)

    def _mark(self, text: str) -> str:
        """Return one character in place of a text: each has to keep its number."""
        if len(text) == 1:
            return text
        mark = _FIRST_MARK + len(self._marks)
        self._marks[mark] = text
        return chr(mark)

    def _is_over(self, accent: int, letter: int) -> bool:
        look, base = self._placed(_text_object(self._handle, letter), letter)
        _, height = self._placed(_text_object(self._handle, accent), accent)
        left, right = self._extent(look, letter)
        middle = sum(self._extent(look, accent)) / 2
        return left < middle < right and abs(height - base) < right - left

    def runs(self) -> Iterator[TextRun]:
        """Yield the text of each text object, cut where PDFium has begun a new line."""
        text = self._characters
        for line in _LINE.finditer(text):
            before = "\n"
            start, end = line.span()
            while start < end:
                if text[start] == " ":
                    start += 1
                    before = before or " "
                    continue
                if self._marks.get(ord(text[start])) == "":  # an accent that has joined its letter
                    start += 1
                    continue
                which = _text_object(self._handle, start)
                last = self._last_of(which, start, end)
                yield from self._parts(which, start, last + 1, before)
                start, before = last + 1, ""

    def _last_of(self, which: int | None, start: int, end: int) -> int:
        """Return the number of the last letter of a text object that begins at ``start``.

        The characters of an object follow each other, so halving finds it; added spaces between
        them are of no object.
        """
        text, found, low, high, middle = self._characters, start, start, end, end - 1
        while high - low > 1:
            at = middle
            while text[at] == " ":
                at -= 1
            if at <= found or _text_object(self._handle, at) == which:
                found, low = max(found, at), middle
            else:
                high = at
            middle = (low + high) // 2
        return found

    def _parts(self, which: int | None, start: int, end: int, before: str) -> Iterator[TextRun]:
        """Yield a piece of text: whole, or a short one in parts whose gaps tell what is a space."""
        look, base = self._placed(which, start)
        for first, last in self._cut(look, start, end):
            left, right = self._extent(look, first)
            if last > first + 1:
                right = self._extent(look, last - 1)[1]
            text = self._characters[first:last]
            text = text.translate(self._marks) if self._marks else text
            yield TextRun(text, before, left, right, base, look)
            before = " " if self._characters[last : last + 1] == " " else ""

    def _cut(self, look: Look, start: int, end: int) -> list[tuple[int, int]]:
        """Return the places of the parts of a piece of text.

        PDFium takes equal gaps within an object for loosely set letters; in an object of two or
        three they may be all of the spaces between words. And groff writes spaces in the middle of
        words that it takes back.
        """
        if start + 1 < end <= start + _SHORT:
            text = self._characters[start:end]
            if " " in text:
                return [(start + m.start(), start + m.end()) for m in _WORD.finditer(text)]
            if self._extent(look, start + 1)[0] - self._extent(look, start)[1] > _LOOSE * look.size:
                return [(n, n + 1) for n in range(start, end)]
        return [(start, end)]

    def _extent(self, look: Look, index: int) -> tuple[float, float]:
        """Return where a character begins and ends in reading direction, in points."""
        box = self._box
        _loose_box(self._handle, index, ctypes.byref(box))
        match look.turn % MIRRORED:
            case 0:
                return box.left, box.right
            case 1:
                return box.bottom, box.top
            case 2:
                return -box.right, -box.left
        return -box.top, -box.bottom

    def _placed(self, which: int | None, number: int) -> tuple[Look, float]:
        """Return the look of a text object and the height of its base line, in points."""
        matrix = self._matrix
        _matrix(self._handle, number, ctypes.byref(matrix))
        _origin(self._handle, number, ctypes.byref(self._x), ctypes.byref(self._y))
        size, font = _font_size(self._handle, number), _object_font(which)
        drawn = font, size, matrix.a, matrix.b, matrix.c, matrix.d
        look = self._looks.get(drawn) or self._looks.setdefault(drawn, self._look(*drawn))
        height = (self._y, self._x)[look.turn % 2].value
        return look, height if look.turn in _UPWARD else -height

    def _look(self, font: int | None, size: float, a: float, b: float, c: float, d: float) -> Look:
        bold, mono = self._face(font)
        if size < 0:
            a, b, c, d = -a, -b, -c, -d
        quarters = math.atan2(b, a) / (math.pi / 2)
        turn = round(quarters) % 4 + (MIRRORED if a * d < b * c else 0)
        return Look(
            turn=turn if abs(quarters - round(quarters)) < _ASLANT else ASLANT,
            size=round(abs(size) * math.hypot(c, d), 2),
            bold=bold,
            mono=mono,
        )

    def _face(self, font: int | None) -> tuple[bool, bool]:
        """Return whether a font is bold, and whether its letters have one width."""
        if font not in self._faces:
            name, fixed = _font(font)
            self._faces[font] = is_bold(name), fixed or is_mono(name)
        return self._faces[font]


def _font(handle: int | None) -> tuple[str, bool]:
    """Return the name of a font, and whether it says that its letters have one width."""
    font = ctypes.cast(handle or 0, pdfium.FPDF_FONT)
    buffer = ctypes.create_string_buffer(200)
    length = pdfium.FPDFFont_GetBaseFontName(font, buffer, len(buffer))
    name = buffer.value.decode("utf-8", "replace") if 0 < length <= len(buffer) else ""
    return name, bool(max(0, pdfium.FPDFFont_GetFlags(font)) & _FIXED_PITCH)
