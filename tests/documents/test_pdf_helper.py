"""Pages that are shared with a copy of the child process."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from specx.documents import pdf
from specx.documents.child import run_child
from specx.documents.read import read_document
from specx.errors import DocumentError

from . import pdfs
from .conftest import SaveFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies processes")

# Reads the numbers 0 to 39; READ says what a page of the helper and one of its own is like.
PROGRAM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
sys.path.insert(0, sys.argv[1])
from specx.documents.pdf_helper import read_shared
first, tried = os.getpid(), set()
def read(number):
    helping = os.getpid() != first
    again = number in tried
    tried.add(number)
    READ
    return {"page": number, "helper": helping}
answers = list(read_shared(range(40), read, memory_bytes=2**30, reopen=lambda: None))
assert sorted(answer["page"] for answer in answers) == list(range(40)), answers
print(sum(answer["helper"] for answer in answers), os.getpid() == first)
"""


@pytest.mark.parametrize(
    ("read", "by_helper"),
    [
        ("pass", 20),
        ("if helping and number > 30: raise MemoryError", 15),
        ("if helping and number > 30: os.kill(os.getpid(), 9)", 0),
        ("if helping: raise OSError", 0),
        ("if not helping and not again: raise MemoryError", 20),
        ("bytearray(700 * 2**20)", 0),  # more than half of the limit
    ],
    ids=[
        "both read",
        "no memory there",
        "killed",
        "failed",
        "no memory here",
        "half is too little",
    ],
)
def test_every_page_is_read_whatever_becomes_of_the_helper(read: str, by_helper: int) -> None:
    root = str(Path(pdf.__file__).parents[2])
    program = PROGRAM.replace("READ", read)
    done = subprocess.run(
        [sys.executable, "-c", program, root], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == ([str(by_helper), "True"], "")


def test_two_processes_read_what_one_reads(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        f"Page {n} tells how the river was measured in the year {1900 + n}." for n in range(20)
    ]
    path = save("a.pdf", pdfs.text_pdf(texts, header="The River Report", footer="Page {n}"))
    documents = []
    for processes in (1, 2):
        monkeypatch.setattr(pdf, "_processes", lambda count=processes: count)
        documents.append(read_document(path))
    assert documents[0] == documents[1]
    assert [p.page for p in documents[1].paragraphs] == list(range(1, 21))


def test_the_time_limit_ends_both(
    save: SaveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(
        "sleeping_worker.py",
        b"import time\n"
        b"from specx.documents.pdf_helper import read_shared\n"
        b"def serve(request):\n"
        b"    sleep = lambda number: time.sleep(20)\n"
        b"    return read_shared(range(8), sleep, memory_bytes=2**40, reopen=lambda: None)\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    started: list[int] = []
    popen = subprocess.Popen

    def start(*args: Any, **kwargs: Any) -> Any:
        process = popen(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    request = pdf.PdfRequest(
        name="a.pdf",
        path=None,
        data=b"",
        time_limit_s=2,
        memory_limit_bytes=2**30,
        passwords=(),
        ranges=None,
    )
    with pytest.raises(DocumentError, match="longer than 2 s"):
        run_child("sleeping_worker", request, {"allowed": ["processes"]})
    until = time.monotonic() + 5  # a process that was killed may take a moment to end
    while alive_in_group(started[0]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive_in_group(started[0])


def alive_in_group(leader: int) -> list[str]:
    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            states += [state] if int(group) == leader and state not in "ZX" else []
    return states
