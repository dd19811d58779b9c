"""Ask pypdf for what PDFium does not tell of a PDF, in the child process."""

import gc
import io
from collections.abc import Sequence
from typing import Any

from specx.documents.lines import Line

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
_COLLECT_AFTER = 200_000  # new objects; pypdf's are seldom in cycles, and to look costs 7 %


def open_pdf(data: bytes, passwords: Sequence[str]) -> Any:
    """Return pypdf's reader of a file that PDFium has opened."""
    import pypdf

    gc.set_threshold(_COLLECT_AFTER)
    configuration = pypdf.get_configuration()  # a version of pypdf may not know all limits
    known = {key: value for key, value in _LIMITS.items() if hasattr(configuration, key)}
    pypdf.overwrite_configuration(**known)
    reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not any(map(reader.decrypt, ["", *passwords])):
        raise ValueError("pypdf cannot decrypt it")
    return reader


def text_layer(reader: Any, number: int) -> tuple[Line, ...]:
    """Return the lines of a page whose letters PDFium does not give, without their places."""
    return tuple(map(Line, reader.pages[number - 1].extract_text().split("\n")))
