"""Recognize the text of one page of a PDF in the child process (``child_worker``).

The request names ``path``, ``passwords``, ``page`` (from 1) and ``data_folder``, where tesseract's
data are. The answer: ``{"text": ...}``, lines and blank lines between paragraphs.
"""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from specx.documents.child_worker import Answer, RefusedError, read_data

_POINTS = 72  # an inch
_DOTS = 300  # an inch; tesseract was made for so many
_MOST_PIXELS = 25_000_000  # of a page; A4 has 8.7 million at 300 dots an inch


def serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    os.environ["OMP_THREAD_LIMIT"] = "1"  # each thread would take its share of the address space
    import tesserocr

    image = _render(read_data(request), request["passwords"], request["page"])
    with tesserocr.PyTessBaseAPI(path=f"{request['data_folder']}/", lang="eng") as tesseract:
        tesseract.SetImage(image)
        yield {"text": tesseract.GetUTF8Text()}


def _render(data: bytes, passwords: list[str], number: int) -> Any:
    """Return an image of a page in greys."""
    import pypdfium2

    document = _open(pypdfium2, data, ["", *passwords])
    try:
        page = document[number - 1]
        width, height = page.get_size()
        most = math.sqrt(_MOST_PIXELS / max(width * height, 1))
        return page.render(scale=min(_DOTS / _POINTS, most), grayscale=True).to_pil()
    except pypdfium2.PdfiumError as error:
        raise RefusedError("page", reason="its picture cannot be drawn") from error


def _open(pypdfium2: Any, data: bytes, passwords: list[str]) -> Any:
    for password in passwords:
        try:
            return pypdfium2.PdfDocument(data, password=password)
        except pypdfium2.PdfiumError:
            continue
    raise RefusedError("page", reason="its picture cannot be drawn")
