"""Many documents: what fails is told, and the others are done."""

import gc
import io
import json
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.decoding.kv_cache import PreallocatedCache
from specx.documents.document import Document, Paragraph
from specx.errors import (
    BatchError,
    DocumentError,
    ModelError,
    OutOfMemoryError,
    SpecxError,
)
from specx.profile import Facts, load_profile, resolve
from specx.records import Timings
from specx.reports.report import LosslessCheck, Report
from specx.runs.destination import Destination
from specx.runs.inputs import (
    Inputs,
    RunInput,
)
from specx.runs.local_workers import ThisProcess
from specx.runs.outcome import AllowedFailures, RunOutcome
from specx.runs.pair import load_pair
from specx.runs.pool import Scheduler
from specx.runs.queue import Queue
from specx.runs.results import Results
from specx.runs.summarizer import Summarizer
from specx.runs.tasks import WorkerSettings
from specx.runs.worker import Worker
from tests.reports.examples import make_report
from tests.runs.listening import Ear
from tests.runs.pairs import TEXT, write_profile


class Silent:
    """A listener."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Fake:
    """Stands for a Summarizer: a document's text says what happens to it."""

    def __init__(self) -> None:
        facts = Facts(device="cpu", target="", window=99, layers=1, full_layers=(0,))
        self.settings = resolve(load_profile("mini"), "plain", facts)
        self.pair = SimpleNamespace(target=SimpleNamespace(device=torch.device("cpu")))
        self.partial = ""
        self.loads: list[float] = []

    def summarize(self, document: Document, before: Timings, _: object) -> Report:
        self.loads.append(before.load)
        self.partial = "Half a"
        report = make_report(document.name)
        match document.text:
            case "unlike":
                report.lossless = LosslessCheck(identical=False, position=3, logit_gap=0.25)
            case "long":
                raise DocumentError(f"{document.name} is too long")
            case "gpu":
                raise torch.OutOfMemoryError("CUDA out of memory")
            case "cpu":
                raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
            case "bug":
                raise ZeroDivisionError("division by\nzero")
            case "stop":
                raise KeyboardInterrupt
            case "full disk":
                raise OSError(28, "No space left on device")
        return report


def as_input(name: str, content: str | SpecxError | None) -> RunInput:
    read = (
        Document(name, "text", (), (Paragraph(content, None),))
        if isinstance(content, str)
        else content
    )
    return RunInput(name=name, relative=PurePath(name), content=read)


SETTINGS = WorkerSettings(profile=load_profile("mini"), method="plain", device="cpu")


class Here(ThisProcess):
    """The only worker, with what a test gives it in place of models; an error in place of these."""

    def __init__(self, models: Any, live: Any) -> None:
        super().__init__(SETTINGS, live)
        self.models, self.loaded = models, 0

    def _make_worker(self) -> Worker:
        worker = super()._make_worker()
        worker._load = self._given  # type: ignore[method-assign]
        return worker

    def _given(self) -> Any:
        self.loaded += 1
        if isinstance(self.models, Exception):
            raise self.models
        return self.models


class Ready(Inputs):
    """Inputs that a test has made."""

    is_ready = True  # type: ignore[assignment]

    def __init__(self, items: Iterable[RunInput]) -> None:
        self._items = iter(items)

    def __next__(self) -> RunInput:
        return next(self._items)


class Batch:
    """A queue over documents with the given texts, and all that can be seen of it."""

    def __init__(self, *contents: str | SpecxError) -> None:
        self.items: list[RunInput] = [
            as_input(f"{number}.txt", content) for number, content in enumerate(contents)
        ]
        self.fake = Fake()
        self.here: Here | None = None
        self.reports: list[Report] = []
        self.errors: list[SpecxError] = []
        self.stdout = io.StringIO()

    def queue(
        self, results: Results | None = None, model: SpecxError | None = None, **options: Any
    ) -> Queue:
        results = results or Results(Destination(self.stdout, format="jsonl"), headings=True)
        self.here = Here(model or self.fake, Silent())
        ending = {k: options.pop(k) for k in ("allowed", "fail_fast") if k in options}
        return Queue(
            Scheduler(self.here, 1),
            results,
            Silent(),  # type: ignore[arg-type]
            RunOutcome(**ending),
            on_done=self.reports.append,
            on_error=self.errors.append,
            **options,
        )

    @property
    def inputs(self) -> Inputs:
        return Ready(self.items)

    def run(self, *, alone: bool = False, **options: Any) -> list[Report]:
        self.queue(**options).run(self.inputs, alone=alone)
        return self.reports

    @property
    def prepared(self) -> int:
        """How often models were loaded."""
        return self.here.loaded if self.here else 0

    @property
    def done(self) -> list[str]:
        return [report.input.name for report in self.reports]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.getvalue().splitlines()]


def test_a_report_knows_the_file_it_is_about() -> None:
    batch = Batch("a", "b")
    batch.items[0] = replace(batch.items[0], path=Path("x/0.txt"))
    assert [report.source for report in batch.run()] == [Path("x/0.txt"), None]


def test_the_model_is_loaded_once_and_its_time_counted_once() -> None:
    batch = Batch("a", "b", "c")
    assert len(batch.run()) == 3
    assert batch.prepared == 1
    assert batch.fake.loads[0] > 0
    assert batch.fake.loads[1:] == [0, 0]


def test_a_document_that_needs_no_model_loads_none() -> None:
    batch = Batch("short", "a")
    reports = batch.run(as_it_is=lambda document, _: short(document))
    assert (batch.prepared, batch.done) == (1, ["0.txt", "1.txt"])
    assert [report.summary for report in reports] == ["short", make_report().summary]
    alone = Batch("short")
    alone.run(alone=True, as_it_is=lambda document, _: short(document))
    assert alone.prepared == 0


def short(document: Document) -> Report | None:
    report = replace(make_report(document.name), summary=document.text)
    return report if document.text == "short" else None


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_out_of_memory_costs_one_document(kind: str) -> None:
    batch = Batch("a", kind, "b")
    with pytest.raises(BatchError, match="1 of 3"):
        batch.run()
    assert isinstance(batch.errors[0], OutOfMemoryError)
    assert str(batch.errors[0]).startswith("1.txt needs more memory than is free; choose")
    assert batch.done == ["0.txt", "2.txt"]


class LittleMemory:
    """Operations on a device that runs out of memory in one of them, as often as it is told to."""

    def __init__(self, ops: Any, operation: str) -> None:
        self._ops, self._operation = ops, operation
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        if name == self._operation and self.fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return getattr(self._ops, name)


@pytest.mark.parametrize("operation", ["prefill_attention", "accept"])
def test_running_out_of_memory_holds_no_memory(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = load_profile(write_profile(tmp_path))
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    ops = LittleMemory(pair.target.ops, operation)
    pair = replace(pair, target=replace(pair.target, ops=ops))  # type: ignore[arg-type]
    batch = Batch(TEXT, TEXT)
    batch.fake = Summarizer(resolve(profile, "specextend", pair.facts), pair, Ear())  # type: ignore[assignment]
    caches: list[weakref.ref[torch.Tensor]] = []
    make = PreallocatedCache.__init__

    def noted(cache: PreallocatedCache, *arguments: Any) -> None:
        make(cache, *arguments)
        caches.append(weakref.ref(cache.storage))

    monkeypatch.setattr(PreallocatedCache, "__init__", noted)
    held: list[int] = []

    first, second = batch.items

    def items() -> Iterator[RunInput]:
        yield first
        held.append(sum(cache() is not None for cache in caches))
        ops.fails = False
        yield second

    monkeypatch.setattr(batch, "items", items())
    gc.disable()
    try:
        with pytest.raises(BatchError, match="1 of 2 documents failed"):
            batch.run()
    finally:
        gc.enable()
    assert len(caches) >= 4
    assert held == [0]
    assert isinstance(batch.errors[0], OutOfMemoryError)
    assert batch.done == ["1.txt"]


def test_a_bug_costs_one_document() -> None:
    batch = Batch("a", "bug", "b")
    with pytest.raises(BatchError):
        batch.run()
    assert "1.txt failed with an unexpected ZeroDivisionError: division by zero; `specx" in str(
        batch.errors[0]
    )
    assert batch.done == ["0.txt", "2.txt"]


@pytest.mark.parametrize("kind", ["long", "gpu", "bug"])
def test_alone_an_error_is_raised_as_it_is(kind: str) -> None:
    batch = Batch(kind)
    with pytest.raises(SpecxError) as caught:
        batch.run(alone=True)
    expected = {"long": DocumentError, "gpu": OutOfMemoryError, "bug": SpecxError}[kind]
    assert type(caught.value) is expected
    assert batch.errors == []
    (line,) = batch.lines()
    assert (line["code"], line["error"]) == (expected.exit_code, str(caught.value))


def test_a_full_disk_ends_the_batch() -> None:
    with pytest.raises(OSError, match="No space left"):
        Batch("full disk", "a").run()


def test_nothing_readable_loads_nothing() -> None:
    batch = Batch(DocumentError("empty"), DocumentError("empty"))
    with pytest.raises(BatchError, match=r"^all 2 documents failed$"):
        batch.run()
    assert batch.prepared == 0


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ((), "interrupted before anything was written"),
        (("a", "b"), "interrupted after 2 documents"),
        (("a", "stop"), "interrupted after 1 document; the partial summary of 1.txt is on stdout"),
        (("long", "stop"), "interrupted; the partial summary of 1.txt is on stdout"),
        (("long",), "interrupted after 1 failure"),
    ],
)
def test_an_interruption_says_what_there_is(contents: tuple[str, ...], said: str) -> None:
    batch = Batch(*contents)
    queue = batch.queue(Results(Destination(batch.stdout), headings=True))
    with suppress(KeyboardInterrupt, BatchError):
        queue.run(batch.inputs)
    assert queue.interrupted() == said
    assert batch.stdout.getvalue().endswith("Half a\n") == ("partial" in said)


def test_files_of_others_cost_one_document_and_no_loading(tmp_path: Path) -> None:
    (tmp_path / "0.txt.md").write_text("precious")
    batch = Batch("a", "b")
    results = Results(Destination(io.StringIO(), out=tmp_path), headings=True)
    queue = batch.queue(results)
    with pytest.raises(BatchError, match="1 of 2 documents failed"):
        queue.run(batch.inputs)
    assert (batch.done, len(batch.fake.loads)) == (["1.txt"], 1)
    assert "exists and specx did not write it" in str(batch.errors[0])
    assert (tmp_path / "0.txt.md").read_text() == "precious"


# ---------------------------------------------------------------- failures that are allowed


def test_as_many_failures_as_are_allowed() -> None:
    batch = Batch("a", "long", "b", "bug")
    batch.run(allowed=AllowedFailures.parse("2"))
    assert (batch.done, len(batch.errors), len(batch.lines())) == (["0.txt", "2.txt"], 2, 4)


def test_more_failures_than_are_allowed() -> None:
    batch = Batch("a", "long", "b", "bug")
    sentence = "2 of 4 documents failed, and --allow-failures allows 1; the others are done"
    with pytest.raises(BatchError, match=sentence):
        batch.run(allowed=AllowedFailures.parse("1"))
    assert batch.done == ["0.txt", "2.txt"]


def test_failures_of_documents_that_are_named(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("1.txt\n3.txt\n")
    allowed = AllowedFailures.parse(str(known))
    Batch("a", "long", "b", "bug").run(allowed=allowed)
    batch = Batch("long", "long", "b", "bug")
    with pytest.raises(
        BatchError, match=r"3 of 4 documents failed, 1 of them not listed in .*known;"
    ):
        batch.run(allowed=allowed)
    assert batch.done == ["2.txt"]


def test_the_only_document_may_fail() -> None:
    batch = Batch("long")
    batch.run(alone=True, allowed=AllowedFailures.parse("1"))
    assert [str(error) for error in batch.errors] == ["0.txt is too long"]


def test_fail_fast_goes_on_behind_an_allowed_failure() -> None:
    batch = Batch("long", "a", "long", "b")
    with pytest.raises(BatchError, match="stopped after 1 document at the first failure"):
        batch.run(allowed=AllowedFailures.parse("1"), fail_fast=True)
    assert (batch.done, len(batch.errors)) == (["1.txt"], 2)


def test_a_model_that_cannot_be_loaded_is_never_allowed() -> None:
    batch = Batch(DocumentError("0.txt is empty"), "a", "b")
    with pytest.raises(ModelError):
        batch.run(model=ModelError("no model"), allowed=AllowedFailures.parse("9"))
    assert batch.prepared == 1
