"""The child process that reads a PDF: started by ``pdf.py``, never imported by the rest.

A PDF is a program of sorts, and a hostile one can ask for any amount of memory and time. So it is
read in a process of its own, under limits that it sets on itself before it opens the file.

Protocol: one line of JSON on stdin (``_serve`` shows its fields), followed by the bytes of the PDF
if no path is named. Answers are lines of JSON on stdout: first ``{"pages": count}``, then one
``{"page": number, "lines": [...]}`` or ``{"page": number, "failed": reason}`` for each page, and
``{"end": true}``; or ``{"error": kind, ...}`` at any time.
"""

import io
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

try:
    import resource
except ImportError:  # not a Unix: the time limit of the parent is all there is
    resource = None  # type: ignore[assignment]

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

Answer = dict[str, Any]


class _RefusedError(Exception):
    """End the work with an answer of the kind ``error``."""

    def __init__(self, kind: str, **details: Any) -> None:
        super().__init__(kind)
        self.answer: Answer = {"error": kind, **details}


class _PageTimeoutError(BaseException):
    """A page took too long. Not an Exception: pypdf catches those in many places."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    _limit_process(request["memory_bytes"], request["cpu_s"])
    sys.path[:] = request["sys_path"]
    logging.disable(logging.CRITICAL)  # pypdf reports every oddity of a file
    try:
        for answer in _serve(request):
            _send(answer)
    except _RefusedError as refused:
        _send(refused.answer)
    except MemoryError:
        _send({"error": "memory"})


def _send(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


def _limit_process(memory_bytes: int, cpu_s: int) -> None:
    if resource is None:
        return
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),  # it has no file to write
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (allowed, hard))
        except (ValueError, OSError):  # macOS has no limit on addresses
            continue


def _serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    import pypdf

    pypdf.overwrite_configuration(**_known_limits(pypdf))
    _keep_words_apart()
    path = request["path"]
    with Path(path).open("rb") if path else io.BytesIO(sys.stdin.buffer.read()) as stream:
        reader = _open(pypdf, stream, request["passwords"])
        count = _count_pages(reader)
        yield {"pages": count}
        characters = 0
        for number in _chosen(request["ranges"], count):
            answer = _read_page(reader, number, request["page_s"])
            characters += sum(len(row[0]) for row in answer.get("lines", ()))
            if characters > _MOST_CHARACTERS:
                raise _RefusedError("too-long", characters=_MOST_CHARACTERS)
            yield answer
        yield {"end": True}


def _known_limits(pypdf: Any) -> dict[str, Any]:
    """Return the limits that this version of pypdf knows."""
    configuration = pypdf.get_configuration()
    return {key: value for key, value in _PYPDF_LIMITS.items() if hasattr(configuration, key)}


def _keep_words_apart() -> None:
    """Bound the width that pypdf takes for a space.

    pypdf looks up the space of a font by its code. In subset fonts that number any glyph 32 it
    finds a letter's width instead, and takes the gaps between words for kerning: the words of
    justified text then run together.
    """
    try:
        from pypdf.generic import _font

        original: Callable[..., Any] = _font.Font.from_font_resource
    except (ImportError, AttributeError):  # a pypdf built differently: usable, if worse
        return

    def bounded(*args: Any, **kwargs: Any) -> Any:
        font = original(*args, **kwargs)
        font.space_width = min(font.space_width, _WIDEST_SPACE)
        return font

    _font.Font.from_font_resource = staticmethod(bounded)


def _open(pypdf: Any, stream: IO[bytes], passwords: Sequence[str]) -> Any:
    try:
        reader = pypdf.PdfReader(stream, strict=False)
        encrypted = reader.is_encrypted
        if encrypted and not any(_unlocks(reader, password) for password in ["", *passwords]):
            raise _RefusedError("password", tried=len(passwords))
    except (_RefusedError, MemoryError):
        raise
    except pypdf.errors.DependencyError as error:
        raise _RefusedError("cipher", reason=_reason(error)) from error
    except Exception as error:
        raise _RefusedError("damaged", reason=_reason(error)) from error
    return reader


def _unlocks(reader: Any, password: str) -> bool:
    return bool(reader.decrypt(password))


def _count_pages(reader: Any) -> int:
    try:
        count = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:
        raise _RefusedError("damaged", reason=_reason(error)) from error
    if not count:
        raise _RefusedError("no-pages")
    return count


def _chosen(ranges: Sequence[Sequence[int | None]] | None, count: int) -> Sequence[int]:
    from specx.documents.pages import first_page_beyond, select_pages

    if ranges is None:
        return range(1, count + 1)
    pairs = [(first or 1, last) for first, last in ranges]
    beyond = first_page_beyond(pairs, count)
    if beyond is not None:
        raise _RefusedError("beyond", page=beyond, pages=count)
    return select_pages(pairs, count)


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
        "lines": [astuple(line) for line in lines],
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


if __name__ == "__main__":
    main()
