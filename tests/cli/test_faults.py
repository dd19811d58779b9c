"""Faults from outside: disks, folders, terminals, processes and files that fail in the middle."""

import errno
import json
import os
import pty
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specx.documents import child
from specx.errors import UsageError
from specx.models import model_files
from specx.runs import inputs
from specx.runs.results import Results
from tests.cli import processes
from tests.cli.processes import Run, exit_code, fork_specx, in_a_process, read_all
from tests.cli.test_jobs import done
from tests.documents.pdfs import text_pdf
from tests.runs.pairs import TEXT, checkpoints, take_too_long, write_profile
from tests.tiny import copy_checkpoint

ROOT = Path(__file__).parents[2]
NAMES = ["docs/a.txt", "docs/b.txt", "docs/c.txt"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three documents that are printed as they are, so that no model is needed."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for name in NAMES:
        Path(name).write_text(f"Notes of {name}.\n")
    return tmp_path


@contextmanager
def limit(what: int, most: int) -> Iterator[None]:
    """Let processes that are started in the block have no more of ``what``."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


def sentences(told: str) -> list[str]:
    """What stderr says, each line one sentence."""
    lines = told.splitlines()
    assert all(line.startswith("specx: ") for line in lines), told
    return [line.removeprefix("specx: ") for line in lines]


# ---------------------------------------------------------------- readers


@pytest.fixture
def pdfs() -> None:
    for name in ("a", "b"):
        Path(f"docs/{name}.pdf").write_bytes(text_pdf([TEXT]))


class Killed(subprocess.Popen[bytes]):
    """The first process is killed while it reads."""

    left = 1

    def communicate(self, *arguments: Any, **options: Any) -> Any:
        if Killed.left:
            Killed.left -= 1
            self.kill()
        return super().communicate(*arguments, **options)


@pytest.mark.usefixtures("pdfs")
def test_a_reader_that_is_killed_costs_one_document(
    specx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Killed, "left", 1)
    monkeypatch.setattr(child.subprocess, "Popen", Killed)
    ended = specx("docs/a.pdf", "docs/b.pdf", "docs/c.txt", "--out", "OUT", "-q")
    assert ended.code == 7
    assert sentences(ended.err) == [
        "docs/a.pdf was not read, because the PDF reader was killed, perhaps by a system that ran "
        "out of memory; try again",
        "1 of 3 documents failed; the others are done",
    ]
    assert done("OUT") == ["b.pdf", "c.txt"]
    assert specx("docs/a.pdf", "docs/b.pdf", "docs/c.txt", "--out", "OUT", "--resume").code == 0


@pytest.mark.usefixtures("pdfs")
def test_no_process_for_a_reader(specx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(child.subprocess, "Popen", refuse)
    ended = specx("docs/a.pdf", "docs/c.txt", "-q", "--out", "OUT")
    assert ended.code == 7
    assert sentences(ended.err)[0] == (
        "docs/a.pdf cannot be read, because no process can be started for the PDF reader (Too many "
        "open files); try again when the machine is less busy"
    )
    assert done("OUT") == ["c.txt"]


@pytest.mark.usefixtures("pdfs")
def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    main = processes.main

    def with_few(arguments: Any) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))
        main(arguments)

    monkeypatch.setattr(processes, "main", with_few)
    ended = in_a_process("docs/a.pdf", "docs/c.txt", "-q", "--jsonl")
    assert ended.code == 7
    assert "(Too many open files)" in sentences(ended.err)[0]
    assert json.loads(ended.out.splitlines()[1])["summary"] == "Notes of docs/c.txt."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("division by zero"), "failed with an unexpected ZeroDivisionError: div"),
        (
            MemoryError(),
            "needs more memory than is free; choose a smaller model, or fewer pages",
        ),
    ],
)
def test_an_error_that_nobody_foresaw_costs_one_document(
    specx: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    read = inputs.read_documents

    def fail(path: str, options: Any) -> Any:
        if path == "docs/b.txt":
            raise error
        return read(path, options)

    monkeypatch.setattr(inputs, "read_documents", fail)
    ended = specx("docs", "--out", "OUT", "-q")
    assert ended.code == 7
    assert sentences(ended.err)[0].startswith(f"docs/b.txt {said}")
    assert done("OUT") == ["docs/a.txt", "docs/c.txt"]


@pytest.mark.parametrize("option", [("-",), ("--from-file", "-")])
@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (None, "stdin is closed; there is nothing to read"),
        (errno.EIO, "stdin cannot be read: Input/output error"),
    ],
)
def test_stdin_that_is_closed_or_gone(
    specx: Run,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    stdin: int | None,
    said: str,
) -> None:
    def read(*_: Any) -> bytes:
        raise OSError(stdin, os.strerror(stdin or 0))

    gone = SimpleNamespace(buffer=SimpleNamespace(read=read))
    monkeypatch.setattr("sys.stdin", None if stdin is None else gone)
    assert specx(*option, "-q") == (3, "", f"specx: {said}\n")


def test_a_document_that_disappears_before_it_is_read(
    specx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = inputs.read_documents

    def disturb(path: str, options: Any) -> Any:
        if path == "docs/a.txt":
            Path(path).unlink()
        if path == "docs/b.txt":
            Path(path).write_text("Changed in the meantime.\n")
        return read(path, options)

    monkeypatch.setattr(inputs, "read_documents", disturb)
    ended = specx("docs", "--out", "OUT", "-q")
    assert ended.code == 7
    assert sentences(ended.err)[0].startswith("docs/a.txt does not exist; did you mean")
    monkeypatch.setattr(inputs, "read_documents", read)
    Path("docs/b.txt").write_text("Changed once more.\n")
    Path("docs/a.txt").write_text("Back again.\n")
    assert specx("docs", "--out", "OUT", "-q", "--resume").code == 0
    assert Path("OUT/docs/b.txt.md").read_text() == "Changed once more.\n"
    assert done("OUT") == ["docs/a.txt", "docs/b.txt", "docs/b.txt", "docs/c.txt"]


def test_a_name_that_is_not_utf_8() -> None:
    Path(os.fsdecode(b"docs/caf\xe9.txt")).write_text("Coffee.\n")
    assert in_a_process("docs", "--out", "OUT", "-q") == (0, "", "")
    again = in_a_process("docs", "--out", "OUT", "--resume")
    assert again[:2] == (0, "")
    assert again.err.startswith("specx: 0 of 4 documents summarized in ")
    assert again.err.endswith(" (4 done before); OUT/index.html lists them\n")


# ---------------------------------------------------------------- disks and folders


def are_whole(name: str) -> bool:
    """Whether the three files of a document are there from beginning to end."""
    summary, report, page = (Path(f"OUT/{name}.{ending}") for ending in ("md", "json", "html"))
    said = summary.read_text()
    return (
        said == f"Notes of {name}.\n"
        and json.loads(report.read_text())["summary"] == said.strip()
        and page.read_text().rstrip().endswith("</html>")
    )


@pytest.mark.parametrize(
    "room",
    [
        *(0, 100, 700, 3500, 9000),
        *(pytest.param(room, marks=pytest.mark.slow) for room in (300, 1500, 6000, 13000)),
    ],
)
def test_a_full_disk_loses_nothing_that_was_done(room: int) -> None:
    later = {name: Path(name).rename(Path(name).name) for name in NAMES[1:]}
    assert in_a_process("docs", "--out", "OUT", "-q") == (0, "", "")
    for name, path in later.items():
        path.rename(name)
    with limit(resource.RLIMIT_FSIZE, room):
        ended = in_a_process("docs", "--out", "OUT", "-q")
    assert ended.code in (2, 7)
    said = sentences(ended.err)
    causes = said if ended.code == 2 else said[:-1]  # the last one counts them
    assert all(re.search("File too large|No space left", each) for each in causes)
    assert are_whole(NAMES[0])
    assert not list(Path("OUT").rglob("*.tmp"))
    assert in_a_process("docs", "--out", "OUT", "-q", "--resume") == (0, "", "")
    assert all(are_whole(name) for name in NAMES)
    assert set(done("OUT")) == set(NAMES)


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_a_full_disk_for_one_file(option: str) -> None:
    place = "one.md" if option == "--out" else "one.json"
    with limit(resource.RLIMIT_FSIZE, 10):
        ended = in_a_process("docs/a.txt", option, place, "-q")
    assert (ended.code, len(sentences(ended.err))) == (2, 1)
    assert "cannot write" in ended.err
    assert not Path(place).exists()


def slow_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """A profile whose model takes too long for the first document."""
    take_too_long(monkeypatch)
    return write_profile(folder)


def test_a_partial_summary_that_cannot_be_kept(
    specx: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile = slow_model(monkeypatch, tmp_path)

    def refuse(*_: Any, **__: Any) -> str:
        raise UsageError("cannot write OUT/x.partial.md: No space left on device")

    monkeypatch.setattr(Results, "interrupted", refuse)
    for name in ("docs/a.txt", "docs/b.txt"):
        Path(name).write_text("\n\n".join([TEXT] * 3))
    ended = specx("docs", "--out", "OUT", "-q", "--timeout", "30", "-p", profile)
    assert ended.code == 7
    assert sentences(ended.err)[0] == (
        "docs/a.txt exceeded --timeout (30.0 s) and was stopped; the partial "
        "summary is lost: cannot write OUT/x.partial.md: No space left on device"
    )
    assert done("OUT") == ["docs/b.txt", "docs/c.txt"]


def removed() -> None:
    shutil.rmtree("OUT")


def replaced_by_a_file() -> None:
    removed()
    Path("OUT").write_text("Mine.\n")


def replaced_by_a_folder() -> None:
    Path("OUT").rename("OLD")
    Path("OUT").mkdir()


@pytest.mark.parametrize("before", ["writing", "beginning"])
@pytest.mark.parametrize("fault", [removed, replaced_by_a_file, replaced_by_a_folder])
def test_an_output_folder_that_vanishes_ends_the_run(
    specx: Run, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], None], before: str
) -> None:
    name = "done" if before == "writing" else "check"
    act, calls = getattr(Results, name), []

    def disturbed(results: Results, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            fault()
        act(results, *arguments)

    monkeypatch.setattr(Results, name, disturbed)
    ended = specx("docs", "--out", "OUT", "-q")
    assert ended.code == 2
    *_, said = sentences(ended.err)
    assert said == (
        "OUT/.specx-lock was deleted or replaced during the run; the run ends here, "
        "because further documents could not be recorded"
    )
    assert len(calls) == 2
    if fault is replaced_by_a_folder:
        assert done("OLD") == ["docs/a.txt"]
    if Path("OUT").is_file():
        assert Path("OUT").read_text() == "Mine.\n"
        Path("OUT").unlink()
    monkeypatch.setattr(Results, name, act)
    assert specx("docs", "--out", "OUT", "-q", "--resume").code == 0
    assert done("OUT")[-3:] == NAMES


# ---------------------------------------------------------------- terminals and pipes


def closed_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def lost_terminal() -> int:
    master, slave = pty.openpty()
    os.close(master)
    return slave


LOST = pytest.mark.parametrize("lost", [closed_pipe, full_disk, lost_terminal])


@LOST
def test_without_stderr_the_work_goes_on(lost: Callable[[], int]) -> None:
    Path("docs/b.txt").write_bytes(b"")
    stderr, (from_out, out) = lost(), os.pipe()
    process = fork_specx(["summarize", "docs", "--out", "OUT"], out, stderr)
    os.close(out)
    os.close(stderr)
    assert read_all(from_out) == [""]
    assert exit_code(process) == 7
    assert done("OUT") == ["docs/a.txt", "docs/c.txt"]


@LOST
def test_without_stdout_the_run_ends(lost: Callable[[], int]) -> None:
    stdout, (from_err, err) = lost(), os.pipe()
    process = fork_specx(["summarize", "docs", "--jsonl", "-q"], stdout, err)
    os.close(err)
    os.close(stdout)
    told = read_all(from_err)[0]
    if lost is closed_pipe:  # `| head` has what it wants
        assert (exit_code(process), told) == (0, "")
    else:
        assert exit_code(process) == 2
        assert re.match(r"cannot write to stdout: (No space|Input/output)", *sentences(told))


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("cut", [None, 100, 5000])
def test_a_model_file_that_goes_after_it_was_checked(
    specx: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, role: str, cut: int | None
) -> None:
    source = checkpoints()[role == "draft"]
    weights = copy_checkpoint(source, tmp_path / "model") / "model.safetensors"
    loaded_bytes = model_files.loaded_bytes

    def then_it_goes(*arguments: Any) -> Any:
        size = loaded_bytes(*arguments)
        if arguments[0] == (weights,) and cut is None:
            weights.unlink()
        elif arguments[0] == (weights,):
            os.truncate(weights, cut or 0)
        return size

    monkeypatch.setattr(model_files, "loaded_bytes", then_it_goes)
    Path("docs/a.txt").write_text("\n\n".join([TEXT] * 3))
    profile = write_profile(tmp_path, "goes", **{role: {"model": str(weights.parent)}})
    ended = specx("docs/a.txt", "-p", profile, "-q")
    assert (ended.code, ended.out) == (4, "")
    said = sentences(ended.err)
    assert len(said) == 1
    assert said[0].startswith(f"The {role} {weights.parent} has weights that cannot be read (")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_model_without_one_of_its_files(specx: Run, tmp_path: Path, name: str) -> None:
    model = copy_checkpoint(checkpoints()[0], tmp_path / "model")
    (model / name).unlink()
    Path("docs/a.txt").write_text("\n\n".join([TEXT] * 3))
    ended = specx("docs", "-p", write_profile(tmp_path, "x", target={"model": str(model)}), "-q")
    assert (ended.code, ended.out, len(sentences(ended.err))) == (4, "", 1)


# ---------------------------------------------------------------- clocks and promises


def test_no_duration_is_measured_by_a_clock_that_can_be_set() -> None:
    clocks = re.compile(r"\btime\.time\(|\bdatetime\b.*\bnow\(|\butcnow\(")
    found = {
        path.relative_to(ROOT / "specx").as_posix()
        for path in (ROOT / "specx").rglob("*.py")
        if clocks.search(path.read_text())
    }
    labels = {"runs/results.py", "bench/session.py", "reports/report.py", "models/template.py"}
    ages_of_files = {"reports/writers.py"}
    assert found == labels | ages_of_files


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for path, name in named:
        source = (ROOT / path).read_text()
        assert re.search(rf"^def {name}\(", source, re.MULTILINE) if name else source, (path, name)
