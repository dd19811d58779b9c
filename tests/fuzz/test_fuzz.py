"""No hostile file crashes a reader, hangs it, or ends in a way that is not documented."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies processes")


def fuzz(readers: str, count: int, seed: int) -> None:
    """Run in a process of its own: what pytest has loaded would count towards the memory."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", readers, str(count), str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.parametrize(
    ("readers", "count"),
    [
        ("pdf", 64),
        ("text,markdown,jsonl,profile,subtitles", 120),
        ("docx,odt,epub,html,mime", 12),
    ],
)
def test_a_few(readers: str, count: int) -> None:
    fuzz(readers, count, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reader", ["pdf", "text", "markdown", "jsonl", "profile"])
def test_twenty_thousand(reader: str) -> None:
    fuzz(reader, 20_000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reader", ["docx", "odt", "epub", "html", "mime", "subtitles"])
def test_five_thousand(reader: str) -> None:
    fuzz(reader, 5000, seed=1)
