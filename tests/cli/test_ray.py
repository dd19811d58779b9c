"""``--workers ray``: the same summaries as one process, and nothing lost with an actor.

Without Ray (`pip install 'specx[ray]'`) the slow tests here are skipped. SPECX_TIMES says how many
times an actor is killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from specx.cli.main import run
from tests.cli.test_interruption import Started, children
from tests.cli.test_jobs import done, results
from tests.cli.test_pipelines import ROOT
from tests.cli.test_summarize import Ended
from tests.cli.test_workers import specx

TIMES = int(os.environ.get("SPECX_TIMES", "2"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that the embedded pair reads in a second or two each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    Path("docs").mkdir()
    for number in range(5):
        sentences = (
            f"In year {year} the harbour of town {number} counted {year * 7 + number} ships."
            for year in range(1900, 1940)
        )
        Path(f"docs/{number}.txt").write_text("\n\n".join(sentences))


def test_without_ray_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "specx.jobs.ray_workers", raising=False)
    capsys.readouterr()
    code = run(["summarize", "docs", "--workers", "ray", "-q"])
    assert Ended(code, *capsys.readouterr()) == (
        2,
        "",
        "specx: --workers ray needs Ray, which is not installed; install it with "
        "`pip install 'specx[ray]'`\n",
    )


def test_an_address_without_ray(capsys: pytest.CaptureFixture[str]) -> None:
    ended = specx(capsys, "docs", "--ray-address", "auto")
    assert ended == (2, "", "specx: --ray-address needs --workers ray\n")


def actors(process: int) -> list[int]:
    """The processes below a run that are actors with models."""
    found, left = [], [process]
    while left:
        below = children(left.pop())
        left += below
        for each in below:
            try:
                line = Path(f"/proc/{each}/cmdline").read_bytes()
            except OSError:
                continue
            found += [each] if b"ray::_Actor" in line else []
    return sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_actor_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert specx(capsys, "docs", "--out", "WHOLE", "--workers", "1").code == 0
    draw, killed = random.Random(3), 0
    for attempt in range(TIMES + 1):  # the first one is left alone
        out = f"OUT{attempt}"
        started = Started(["summarize", "docs", "--out", out, "--workers", "ray"])
        deadline = time.monotonic() + 120
        while attempt and time.monotonic() < deadline:
            if len(found := actors(started.process.pid)) >= 2:
                time.sleep(draw.uniform(0, 12))
                if started.process.poll() is None:
                    os.kill(draw.choice(found), signal.SIGKILL)
                    killed += 1
                break
            time.sleep(0.05)
        _, err = started.process.communicate(timeout=300)
        assert started.process.returncode == 0, err
        assert results(out) == results("WHOLE")
        assert done(out) == [f"docs/{number}.txt" for number in range(5)]
    assert killed > 0
