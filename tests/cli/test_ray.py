"""``--workers ray``: the same summaries as one process, and nothing lost with an actor.

Without Ray (`pip install 'ray>=2.40'`) the slow tests here are skipped. SPECX_TIMES says how many
times an actor is killed.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.processes import Run
from tests.cli.test_interruption import Started, alive, below
from tests.cli.test_jobs import done, results
from tests.cli.test_pipelines import ROOT

TIMES = int(os.environ.get("SPECX_TIMES", "2"))
NAMES = [f"docs/{number}.txt" for number in range(5)]
MUCH = ("--sentences", "32")  # so that each document is seconds of work

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that the embedded pair reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    Path("docs").mkdir()
    for number, name in enumerate(NAMES):
        sentences = [
            f"In year {year} the harbour of town {number} counted {year * 7 + number} ships."
            for year in range(1800, 2000)
        ]
        paragraphs = (" ".join(sentences[first : first + 8]) for first in range(0, 200, 8))
        Path(name).write_text("\n\n".join(paragraphs))


def test_without_ray_it_says_how_to_install_it(specx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "specx.runs.ray_workers", raising=False)
    assert specx("docs", "--workers", "ray", "-q") == (
        2,
        "",
        "specx: --workers ray needs Ray, which is not installed; install it with "
        "`pip install 'ray>=2.40'`\n",
    )


def test_an_address_without_ray(specx: Run) -> None:
    ended = specx("docs", "--ray-address", "auto")
    assert ended == (2, "", "specx: --ray-address needs --workers ray\n")


def actors(process: int, doing: str = "") -> list[int]:
    """The actors of a run, by the titles that Ray gives them: all, or those that do something."""
    found = []
    for each in below(process):
        with suppress(OSError):
            title = Path(f"/proc/{each}/cmdline").read_text().rstrip("\0")
            found += [each] if title.startswith(f"ray::_Actor{doing}") else []
    return found


def in_the_middle(process: int) -> list[int]:
    """The actors that have a document in work."""
    return actors(process, doing=".do")


def wait_for(ready: Callable[[], object], seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill_in_the_middle(run: int, draw: random.Random) -> None:
    """Kill an actor at a document. It is halted before, so that it cannot have just ended it."""
    wait_for(lambda: in_the_middle(run))
    time.sleep(draw.uniform(0, 0.5))
    while True:
        wait_for(lambda: in_the_middle(run))
        for each in in_the_middle(run):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
                at_work = each in in_the_middle(run)
                os.kill(each, signal.SIGKILL if at_work else signal.SIGCONT)
                if at_work:
                    return


def summarize_and_kill(out: str, after: int, draw: random.Random) -> str:
    """Run, kill an actor as soon as so many documents are done, and return stderr of the end."""
    arguments = ["summarize", "docs", "--out", out, "--workers", "ray", *MUCH]
    started = Started(["--debug", *arguments])  # tells what becomes of each document
    log = Path(out, ".specx-log.jsonl")
    wait_for(lambda: log.exists() and len(done(out)) >= after)
    kill_in_the_middle(started.process.pid, draw)
    _, err = started.process.communicate(timeout=900)
    assert started.process.returncode == 0, err
    return err


@pytest.mark.slow
@pytest.mark.timeout(7200)
@needs_proc
def test_a_killed_actor_loses_nothing(specx: Run) -> None:
    pytest.importorskip("ray")
    assert specx("docs", "--out", "WHOLE", "--workers", "1", *MUCH).code == 0
    assert specx("docs", "--out", "OUT", "--workers", "ray", *MUCH).code == 0
    assert results("OUT") == results("WHOLE")
    draw = random.Random(3)
    for attempt in range(TIMES):
        out = f"OUT{attempt}"
        err = summarize_and_kill(out, attempt % (len(NAMES) - 1), draw)
        assert "waiting for another worker" in err
        assert results(out) == results("WHOLE")
        assert done(out) == NAMES


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_actor_outlives_the_run(number: signal.Signals) -> None:
    pytest.importorskip("ray")
    started = Started(["summarize", "docs", "--out", "OUT", "--workers", "ray", *MUCH])
    wait_for(lambda: in_the_middle(started.process.pid))
    found = below(started.process.pid)
    workers = actors(started.process.pid)
    code, _, err, seconds = started.end_by(number)
    if number == signal.SIGINT:
        assert code == 130
        assert seconds < 2.0
        assert err.splitlines()[-1].startswith("specx: interrupted")
        wait_for(lambda: not any(map(alive, found)), seconds=5)
    else:  # Ray's own processes notice it after a minute, the actors at once
        wait_for(lambda: not any(map(alive, workers)), seconds=30)
