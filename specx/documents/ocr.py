"""Recognize the text of scanned pages, with what the extra ``ocr`` brings.

Each page is read in a child process of its own, so that a bad one costs no other.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from specx.documents.child import ChildRequest, answers, run_child
from specx.documents.lines import Line, PageLines
from specx.documents.pages import format_pages
from specx.errors import DocumentError

_DATA = "eng.traineddata"
_FOLDERS = ("/usr/share", "/usr/local/share", "/opt/homebrew/share")
_VARIABLE = "TESSDATA_PREFIX"


@dataclass(frozen=True)
class Recognized:
    """The lines of each page that was recognized, and why others could not be."""

    pages: dict[int, tuple[Line, ...]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def put_into(self, pages: Sequence[PageLines]) -> list[PageLines]:
        """Return pages with the recognized lines in their places."""
        return [
            replace(page, lines=self.pages[page.number]) if page.number in self.pages else page
            for page in pages
        ]

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence about the pages whose text was recognized."""
        read = [number for number, lines in self.pages.items() if any(x.text for x in lines)]
        if not read:
            return ()
        were = "was" if len(read) == 1 else "were"
        return (
            f"{format_pages(read).capitalize()} {were} read by text recognition, which makes "
            "mistakes.",
        )


def recognize(
    request: ChildRequest, passwords: Sequence[str], numbers: Sequence[int]
) -> Recognized:
    """Return the text of scanned pages. Raises DocumentError when something is not installed."""
    details = {"passwords": list(passwords), "data_folder": str(_data_folder(request.name))}
    recognized = Recognized()
    for number in numbers:
        try:
            output = run_child("specx.documents.ocr_worker", request, {**details, "page": number})
        except DocumentError as error:
            reason = str(error).removeprefix(f"{request.name} ").partition(";")[0]
            recognized.failed[number] = reason
            continue
        for answer in answers(output):
            if "text" in answer:
                lines = answer["text"].split("\n")
                recognized.pages[number] = tuple(Line(line.strip()) for line in lines)
            else:
                recognized.failed[number] = answer.get("reason", "it needs too much memory")
    return recognized


def _data_folder(name: str) -> Path:
    """Return the folder of tesseract's data for English."""
    if find_spec("tesserocr") is None or find_spec("pypdfium2") is None:
        raise DocumentError(
            f"{name} needs packages for --ocr that are not installed: "
            "pip install 'tesserocr>=2.8' 'pillow>=11'"
        )
    for folder in _folders():
        if (folder / _DATA).is_file():
            return folder.resolve()
    raise DocumentError(
        f"{name} needs tesseract's data for --ocr ({_DATA}): install them, as with "
        f"`apt-get install tesseract-ocr-eng`, or name their folder in {_VARIABLE}"
    )


def _folders() -> list[Path]:
    """Return the folders where the data may be. If the variable is set, they are there."""
    if given := os.environ.get(_VARIABLE):
        return [Path(given), Path(given) / "tessdata"]
    found: list[Path] = []
    for folder in map(Path, _FOLDERS):
        found += [*sorted(folder.glob("tesseract-ocr/*/tessdata"), reverse=True)]
        found += [folder / "tessdata", folder / "tesseract" / "tessdata"]
    return found
