"""``--workers``: several processes, the same results, and nothing lost or left behind."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from specx.cli import summary_run
from specx.runs.pool import Placement
from tests.cli.processes import Run
from tests.cli.test_interruption import Started, alive, children
from tests.cli.test_jobs import done, long, results
from tests.runs.pairs import write_profile

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("docs").mkdir()
    for name in "abcde":
        Path(f"docs/{name}.txt").write_text(long(name))
    Path("docs/c.txt").write_bytes(b"")
    return write_profile(tmp_path)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A profile whose documents take seconds, in many steps."""
    return write_profile(
        tmp_path,
        "slow",
        target={"window": 1500},
        draft=None,
        generation={"max_new_tokens": 700, "temperature": 1.0, "seed": 1},
    )


def workers(process: int) -> list[int]:
    """The workers of a run that is in the middle of its documents."""
    lines = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children(process)}
    return sorted(child for child, line in lines.items() if b"local_workers" in line)


def test_they_write_what_one_process_writes(specx: Run, profile: str) -> None:
    alone = specx("docs", "-p", profile)
    shared = specx("docs", "-p", profile, "--workers", "2")
    assert shared.code == alone.code == 7
    assert shared.out == alone.out
    last = re.compile("specx: .*docs/c.txt.*\n|specx: 1 of 5.*\n")
    assert last.findall(shared.err) == last.findall(alone.err) != []


@contextmanager
def watching(name: bytes) -> Iterator[set[int]]:
    """The processes of a name that those of this one begin meanwhile."""
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            below = (each for child in children(os.getpid()) for each in children(child))
            for process in below:
                with suppress(OSError):
                    if name in Path(f"/proc/{process}/cmdline").read_bytes():
                        seen.add(process)

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    over.set()
    thread.join()


@pytest.mark.slow
def test_prompts_made_beside_a_worker_are_the_same(
    specx: Run, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    alone = specx("docs", "-p", slow, "--jsonl")
    placement = Placement(number=1, waiting=1, reading=1, prepares=True)
    monkeypatch.setattr(summary_run, "choose_placement", lambda *_, **__: placement)
    with watching(b"runs.processes") as seen:
        beside = specx("docs", "-p", slow, "--jsonl")
    assert seen
    assert beside.code == alone.code == 7
    summaries = [
        [json.loads(line).get("summary") for line in ended.out.splitlines()]
        for ended in (alone, beside)
    ]
    assert summaries[0] == summaries[1]
    assert len(summaries[0]) == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "٣"])
def test_a_number_of_workers_that_is_none(specx: Run, text: str) -> None:
    ended = specx("docs", "--workers", text)
    assert ended == (
        2,
        "",
        f"specx: --workers is {text}; it must be a number of processes, auto or ray\n",
    )


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded(specx: Run, tmp_path: Path) -> None:
    profile = write_profile(tmp_path, "none", target={"model": "./nowhere"})
    ended = specx("docs", "-p", profile, "--workers", "2", "--out", "OUT")
    assert ended.code == 4
    assert "nowhere" in ended.err.splitlines()[-1]


def in_the_middle(started: Started, out: str, documents: int) -> list[int]:
    """Wait until so many documents are done and workers are at others; return the workers."""
    deadline = time.monotonic() + 120
    log = Path(out) / ".specx-log.jsonl"
    while time.monotonic() < deadline:
        ended = log.read_text().count('"done"') if log.exists() else -1
        if ended >= documents and len(found := workers(started.process.pid)) == 2:
            return found
        time.sleep(0.02)
    raise AssertionError("no document was done")


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(specx: Run, slow: str) -> None:
    Path("docs/c.txt").unlink()
    specx("docs", "-p", slow, "--out", "WHOLE")
    for attempt in range(3):
        out = f"OUT{attempt}"
        started = Started(["summarize", "docs", "-p", slow, "--out", out, "--workers", "2"])
        os.kill(in_the_middle(started, out, attempt)[0], signal.SIGKILL)
        _, err = started.process.communicate(timeout=200)
        assert started.process.returncode == 0, err
        assert results(out) == results("WHOLE")
        assert done(out) == [f"docs/{name}.txt" for name in "abde"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_run(slow: str, number: signal.Signals) -> None:
    for name in range(30):
        Path(f"docs/{name}.txt").write_text(long(f"{name}"))
    started = Started(["summarize", "docs", "-p", slow, "--out", "OUT", "--workers", "2"])
    found = in_the_middle(started, "OUT", 2)
    time.sleep(0.5)  # until both have written something of the next
    code, _, err, seconds = started.end_by(number)
    deadline = time.monotonic() + 5
    while (left := [each for each in found if alive(each)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []
    if number == signal.SIGKILL:
        return
    assert code == 128 + number
    assert seconds < 2.0
    said = err.splitlines()[-1]
    assert re.match(r"specx: interrupted after \d+ documents; the partial summary of docs/", said)
    for path in Path("OUT").rglob("*.partial.md"):
        assert path.read_text().strip()
        assert str(path) in said
    whole = Path("OUT/docs").glob("*[!r].json")
    assert all(json.loads(path.read_text()) for path in whole)
