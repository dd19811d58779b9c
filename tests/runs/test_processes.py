"""Prompts made in a process beside: the same ones, and nothing depends on that process."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specx.documents.document import Document, Paragraph
from specx.profile import InstructPrompt
from specx.prompts.instruct import Instruct
from specx.runs.processes import MakePrompts, Prepared, Preparer, prepared_by
from tests.cli.test_interruption import alive

from .pairs import TEXT, TOKENIZER

ROOM = 300
MAKE: MakePrompts = partial(Instruct(TOKENIZER, InstructPrompt().request).prompts, room=ROOM)

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def document(name: str, paragraphs: int = 3) -> Document:
    texts = [f"{TEXT} {name} {number} </s> <p3>" for number in range(paragraphs)]
    return Document(name, "text", (), tuple(Paragraph(text, None) for text in texts))


class Beside:
    """A Preparer that has begun, and has had the document that nobody prepares."""

    def __init__(self, make: MakePrompts = MAKE) -> None:
        self.preparer = Preparer()
        assert self.preparer.expect(document("first")) is None
        self.preparer.begin(make)

    def prepared(self, each: Document) -> Prepared | None:
        """What is prepared of a document for which there is time enough."""
        promised = self.preparer.expect(each)
        assert promised is not None
        deadline = time.monotonic() + 20
        while not promised.is_ready and time.monotonic() < deadline:
            time.sleep(0.005)
        return prepared_by(promised)

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        return self.preparer._process

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


Start = Callable[..., Beside]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[Beside] = []

    def begin(*arguments: Any) -> Beside:
        begun.append(Beside(*arguments))
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()


@needs_proc
def test_they_are_those_that_are_made_here(start: Start) -> None:
    """Of one document after the other, whatever the one before was, and without torch."""
    beside = start()
    documents = [document("a"), document("b", 40), Document("c", "text", (), ()), document("a")]
    for each in documents:
        prepared = beside.prepared(each)
        assert prepared is not None
        prompts, seconds = prepared
        assert prompts == MAKE(each)
        assert seconds > 0
    assert beside.process is not None
    assert "libtorch" not in Path(f"/proc/{beside.process.pid}/maps").read_text()


def test_an_error_costs_one_document(start: Start) -> None:
    """It is raised where the prompts are needed, and made once more."""
    beside = start()
    torn = Document("a", "text", (), (None,))  # type: ignore[arg-type]
    assert beside.prepared(torn) is None
    assert beside.prepared(document("b")) is not None


def test_a_process_that_is_killed_costs_nothing_else(start: Start) -> None:
    beside = start()
    assert beside.prepared(document("a"))
    beside.kill()
    assert beside.prepared(document("b")) is None
    assert beside.prepared(document("c")) is None


def test_a_tokenizer_that_cannot_be_sent(start: Start) -> None:
    """The process has nothing to do, and ends."""
    beside = start(lambda each: MAKE(each))
    assert beside.prepared(document("a")) is None
    assert beside.process is not None
    assert beside.process.wait(20) == 0


def test_a_document_that_cannot_be_sent(start: Start) -> None:
    """Nothing more is prepared then, and the process ends."""
    beside = start()
    assert beside.prepared(Document("a", "text", (), (lambda: 0,))) is None  # type: ignore[arg-type]
    assert beside.prepared(document("b")) is None
    assert beside.process is not None
    assert beside.process.wait(20) == 0


def test_no_process_can_be_started(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert start().prepared(document("a")) is None


def test_a_single_document_starts_no_process(start: Start) -> None:
    beside = start()
    time.sleep(0.1)
    assert beside.process is None


def test_nobody_waits_for_what_has_not_begun() -> None:
    """Such as while the process starts."""
    preparer = Preparer()
    preparer.expect(document("first"))
    promised = preparer.expect(document("a"))
    assert prepared_by(promised) is None
    assert prepared_by(None) is None


@needs_proc
def test_it_ends_with_the_process_that_began_it() -> None:
    """Also in the middle of a long document."""
    program = (
        "import time; from specx.runs.processes import Preparer\n"
        "preparer = Preparer(); preparer.expect(0)\n"
        "preparer.begin(time.sleep)\n"
        "promised = preparer.expect(0)\n"
        "while not promised.is_ready: time.sleep(.01)\n"
        "assert promised.result()\n"
        "preparer.expect(1000)\n"
        "print(preparer._process.pid, flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as began:
        assert began.stdout is not None
        process = int(began.stdout.readline())
        assert alive(process)
        began.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while alive(process) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not alive(process)
