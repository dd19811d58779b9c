"""The objects that a PDF page draws, by PDFium: their kinds and places, and what hides a text.

Text is hidden by its colour or its render mode where nothing darker lies behind it. A text without
colour over a picture is the usual text layer of a scan, and counts as seen.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import pypdfium2_raw.bindings as pdfium

_NESTED = 8  # forms within forms that are looked into
_WHITE = 250  # of 255; a reader sees no difference to paper
_EMPTY_MODES = (3, 7)  # render modes that paint nothing
_STROKED_MODES = (1, 2, 5, 6)

_Handle = ctypes.c_void_p
_Int = ctypes.c_int
Box = tuple[float, float, float, float]  # left, bottom, right and top, in points
_Matrix = tuple[float, float, float, float, float, float]
_UNCHANGED: _Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def pdfium_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of PDFium that takes handles as plain numbers, which is much faster."""
    address = ctypes.cast(getattr(pdfium, name), _Handle).value or 0
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def number_of(handle: Any) -> int:
    return ctypes.cast(handle, _Handle).value or 0


_page_object = pdfium_function("FPDFPage_GetObject", _Handle, _Handle, _Int)
_form_object = pdfium_function("FPDFFormObj_GetObject", _Handle, _Handle, ctypes.c_ulong)
_form_count = pdfium_function("FPDFFormObj_CountObjects", _Int, _Handle)
_kind = pdfium_function("FPDFPageObj_GetType", _Int, _Handle)
_object_bounds = pdfium_function("FPDFPageObj_GetBounds", _Int, *5 * [_Handle])
_object_matrix = pdfium_function("FPDFPageObj_GetMatrix", _Int, _Handle, _Handle)
_fill_color = pdfium_function("FPDFPageObj_GetFillColor", _Int, *5 * [_Handle])
_draw_mode = pdfium_function("FPDFPath_GetDrawMode", _Int, *3 * [_Handle])
_render_mode = pdfium_function("FPDFTextObj_GetTextRenderMode", _Int, _Handle)

TEXT, PATH = pdfium.FPDF_PAGEOBJ_TEXT, pdfium.FPDF_PAGEOBJ_PATH
IMAGE, _SHADING = pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_SHADING
_FORM = pdfium.FPDF_PAGEOBJ_FORM


# A handle, its kind, and the matrix of the forms that it is in.
_Object = tuple[int, int, _Matrix]


class PageObjects:
    """The objects of a page, those in forms included, and the box of it that is shown."""

    def __init__(self, page: Any) -> None:
        self._all = list(_objects(number_of(page)))
        self.kinds = Counter(kind for _, kind, _ in self._all)
        box = pdfium.FS_RECTF()
        pdfium.FPDF_GetPageBoundingBox(page, ctypes.byref(box))
        self.box: Box = (box.left, box.bottom, box.right, box.top)
        crop, sheet = _own_box(page, "CropBox"), _own_box(page, "MediaBox")
        self.is_cropped = crop is not None and crop != sheet
        self._colour = (ctypes.c_uint * 4)()  # red, green, blue and alpha
        first = ctypes.addressof(self._colour)
        self._channels = range(first, first + 16, 4)

    def boxes(self, *kinds: int) -> Iterator[Box]:
        return (_bounds(handle, matrix) for handle, kind, matrix in self._all if kind in kinds)

    @cached_property
    def pictures(self) -> list[Box]:
        return list(self.boxes(IMAGE))

    @cached_property
    def _dark(self) -> list[Box]:
        """Return the places of what white letters are seen on."""
        paths = ((handle, matrix) for handle, kind, matrix in self._all if kind == PATH)
        areas = (_bounds(path, matrix) for path, matrix in paths if self._is_dark_area(path))
        return [*self.pictures, *self.boxes(_SHADING), *areas]

    @property
    def covered(self) -> float:
        """Return the share of the shown page that lies under pictures, about."""
        parts = [_common(each, self.box) for each in self.pictures]
        parts = [each for each in parts if _area(each)]
        if not parts:
            return 0.0
        lefts, lows, rights, tops = zip(*parts, strict=True)
        hull = (min(lefts), min(lows), max(rights), max(tops))
        return min(sum(map(_area, parts)), _area(hull)) / _area(self.box)

    def shown_on(self, text: int | None) -> list[Box] | None:
        """Return on what alone a reader sees this text object; None if it is seen anywhere."""
        mode = _render_mode(text)
        if mode in _EMPTY_MODES:
            return self.pictures
        return self._dark if mode not in _STROKED_MODES and self._is_white(text) else None

    def _is_white(self, handle: int | None) -> bool:
        colour = self._colour
        if not _fill_color(handle, *self._channels):
            return False  # a pattern
        return (colour[0] >= _WHITE and min(colour[:3]) >= _WHITE) or not colour[3]

    def _is_dark_area(self, path: int) -> bool:
        fill, stroke = ctypes.c_int(), ctypes.c_int()
        _draw_mode(path, ctypes.byref(fill), ctypes.byref(stroke))
        return bool(fill.value) and not self._is_white(path)


def _own_box(page: Any, name: str) -> Box | None:
    """Return a box of a page in whole points; None if it has none of its own."""
    sides = [ctypes.c_float() for _ in range(4)]
    known = getattr(pdfium, f"FPDFPage_Get{name}")(page, *map(ctypes.byref, sides))
    left, bottom, right, top = (float(round(side.value)) for side in sides)
    return (left, bottom, right, top) if known else None


def _objects(page: int) -> Iterator[_Object]:
    """Yield each object of a page, and those in forms."""
    count = max(0, pdfium.FPDFPage_CountObjects(ctypes.cast(page, pdfium.FPDF_PAGE)))
    handles: Iterator[tuple[int, _Matrix]] = (
        (_page_object(page, n), _UNCHANGED) for n in range(count)
    )
    for _ in range(_NESTED):
        forms = []
        for handle, matrix in handles:
            kind = _kind(handle)
            yield handle, kind, matrix
            if kind == _FORM:
                forms.append((handle, _product(_matrix_of(handle), matrix)))
        handles = (
            (_form_object(form, n), matrix)
            for form, matrix in forms
            for n in range(max(0, _form_count(form)))
        )


def _matrix_of(form: int) -> _Matrix:
    matrix = pdfium.FS_MATRIX()
    if not _object_matrix(form, ctypes.byref(matrix)):
        return _UNCHANGED
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _product(m: _Matrix, n: _Matrix) -> _Matrix:
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
        m[4] * n[0] + m[5] * n[2] + n[4],
        m[4] * n[1] + m[5] * n[3] + n[5],
    )


def _bounds(handle: int, matrix: _Matrix) -> Box:
    sides = [ctypes.c_float() for _ in range(4)]
    _object_bounds(handle, *map(ctypes.byref, sides))
    left, bottom, right, top = (side.value for side in sides)
    if matrix is _UNCHANGED:
        return left, bottom, right, top
    a, b, c, d, e, f = matrix
    xs = [a * x + c * y + e for x in (left, right) for y in (bottom, top)]
    ys = [b * x + d * y + f for x in (left, right) for y in (bottom, top)]
    return min(xs), min(ys), max(xs), max(ys)


def _common(some: Box, other: Box) -> Box:
    return (
        max(some[0], other[0]),
        max(some[1], other[1]),
        min(some[2], other[2]),
        min(some[3], other[3]),
    )


def _area(box: Box) -> float:
    left, low, right, top = box
    return max(0.0, right - left) * max(0.0, top - low)


def is_in(boxes: list[Box], x: float, y: float) -> bool:
    return any(left <= x <= right and low <= y <= top for left, low, right, top in boxes)
