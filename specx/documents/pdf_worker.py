"""Read a PDF in the child process (``child_worker``); never imported by the rest.

The request names ``path``, ``passwords``, ``ranges``, ``page_s`` and ``processes``. Answers: first
``{"pages": count}``, then one ``{"page": number, "lines": [...]}`` or
``{"page": number, "failed": reason}`` for each page, in any order, and ``{"end": true}``.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from specx.documents.child_worker import Answer, RefusedError, open_file

_MEGABYTE = 1_000_000
# Far above what the text of a page needs, far below what a bomb unpacks to.
_PYPDF_LIMITS = {
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
_MOST_CHARACTERS = 20 * _MEGABYTE  # of all pages together
_BLANK_PAGE = 500  # bytes of drawing commands, about
_WIDEST_SPACE = 300  # thousandths of the letter size
_MOST_FONTS = 256  # kept in memory
_COLLECT_AFTER = 200_000  # new objects; pypdf's are seldom in cycles, and to look costs 7 %


class _PageTimeoutError(BaseException):
    """A page took too long. Not an Exception: pypdf catches those in many places."""


def serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    import pypdf

    gc.set_threshold(_COLLECT_AFTER)
    pypdf.overwrite_configuration(**_known_limits(pypdf))
    _amend_fonts()
    with open_file(request) as stream:
        reader = _open(pypdf, stream, request["passwords"])
        count = _count_pages(reader)
        yield {"pages": count}
        characters = 0
        for answer in _read_pages(reader, _chosen(request["ranges"], count), request):
            characters += sum(len(row[0]) for row in answer.get("lines", ()))
            if characters > _MOST_CHARACTERS:
                raise RefusedError("too-long", characters=_MOST_CHARACTERS)
            yield answer
        yield {"end": True}


def _known_limits(pypdf: Any) -> dict[str, Any]:
    """Return the limits that this version of pypdf knows."""
    configuration = pypdf.get_configuration()
    return {key: value for key, value in _PYPDF_LIMITS.items() if hasattr(configuration, key)}


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
        if encrypted and not any(_unlocks(reader, password) for password in ["", *passwords]):
            raise RefusedError("password", tried=len(passwords))
    except (RefusedError, MemoryError):
        raise
    except pypdf.errors.DependencyError as error:
        raise RefusedError("cipher", reason=_reason(error)) from error
    except Exception as error:
        raise RefusedError("damaged", reason=_reason(error)) from error
    return reader


def _unlocks(reader: Any, password: str) -> bool:
    return bool(reader.decrypt(password))


def _count_pages(reader: Any) -> int:
    try:
        count = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:
        raise RefusedError("damaged", reason=_reason(error)) from error
    if not count:
        raise RefusedError("no-pages")
    return count


def _chosen(ranges: Sequence[Sequence[int | None]] | None, count: int) -> Sequence[int]:
    from specx.documents.pages import first_page_beyond, select_pages

    if ranges is None:
        return range(1, count + 1)
    pairs = [(first or 1, last) for first, last in ranges]
    beyond = first_page_beyond(pairs, count)
    if beyond is not None:
        raise RefusedError("beyond", page=beyond, pages=count)
    return select_pages(pairs, count)


def _read_pages(
    reader: Any, numbers: Sequence[int], request: Mapping[str, Any]
) -> Iterator[Answer]:
    def read(number: int) -> Answer:
        return _read_page(reader, number, request["page_s"])

    def reopen() -> None:
        if request["path"]:
            reader.stream = Path(request["path"]).open("rb")  # noqa: SIM115 as long as the process

    if request["processes"] > 1:
        from specx.documents.pdf_helper import FEWEST_PAGES, read_shared

        if len(numbers) >= FEWEST_PAGES:
            memory = request["memory_bytes"]
            return read_shared(numbers, read, memory_bytes=memory, reopen=reopen)
    return map(read, numbers)


def _read_page(reader: Any, number: int, limit_s: float) -> Answer:
    """Read one page. Any fault costs only this page, except a lack of memory."""
    try:
        with _limited_time(limit_s):
            return {"page": number, **_extract(reader.pages[number - 1])}
    except MemoryError:
        raise
    except _PageTimeoutError:
        return {"page": number, "failed": f"it takes longer than {limit_s:g} s"}
    except Exception as error:
        return {"page": number, "failed": _reason(error)}


@contextmanager
def _limited_time(limit_s: float) -> Iterator[None]:
    """Raise _PageTimeoutError when the body runs longer, where the system can tell."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise _PageTimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _extract(page: Any) -> Answer:
    from specx.documents.pdf_lines import Fragment, lines_of, plain_lines

    fragments: list[Fragment] = []
    text = page.extract_text(visitor_text=lambda *seen: fragments.append(Fragment(*seen)))
    seen_by_visitor = "".join(fragment.text for fragment in fragments)
    # pypdf mends right-to-left text behind the visitor's back; then only the text counts.
    placed = "".join(seen_by_visitor.split()) == "".join(text.split())
    lines = lines_of(fragments) if placed else plain_lines(text)
    return {
        "lines": [list(vars(line).values()) for line in lines],
        "drawn": _has_image(page) or _is_drawn(page, text),
    }


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


def _reason(error: Exception) -> str:
    """Return the first line of an error of pypdf, as an aside in a sentence."""
    first = str(error).strip().partition("\n")[0][:120]
    readable = "".join(char for char in first if char.isascii() and char.isprintable())
    return readable.rstrip(" .") or type(error).__name__
