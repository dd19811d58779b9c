"""The line of a whole job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from specx.cli.console import make_console
from specx.reports.live import LiveLine
from specx.reports.progress import JobProgress
from tests.reports.screen import Screen


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def after(
    seconds: float, total: int | None, done: int = 0, failed: int = 0, skipped: int = 0
) -> JobProgress:
    """A job whose documents ended in so many seconds each; loading had taken a minute before."""
    clock = Clock()
    job = JobProgress(total, clock=clock, skipped=skipped)
    clock.now = 60.0 if done + failed else 0.0
    for number in range(done + failed):
        clock.now += seconds
        job.ended(failed=number < failed)
    return job


def words(job: JobProgress, width: int) -> str:
    line = job.line(width)
    return f"{line.before} [{line.bar}] {line.after}" if line.bar else line.before


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (99, "50 of 200 documents [20] 2 failed, 24.0 documents/min, about 6 min 10 s left"),
        (79, "50 of 200 documents [7] 2 failed, 24.0 documents/min, about 6 min 10 s left"),
        (76, "50 of 200 documents, 2 failed, 24.0 documents/min, about 6 min 10 s left"),
        (59, "50 of 200 documents [7] 2 failed, about 6 min 10 s left"),
        (39, "50 of 200 documents [10] 2 failed"),
        (19, "50 of 200 documents"),
        (10, "2 failed"),
    ],
)
def test_what_a_narrow_terminal_shows(width: int, line: str) -> None:
    assert words(after(2.5, 200, done=31, failed=2, skipped=19), width) == line


def test_before_anything_is_done() -> None:
    assert words(after(5, 12), 79) == "0 of 12 documents [20] "
    assert words(after(5, None), 79) == "0 done"
    assert words(after(60, None, done=3), 79) == "3 done, 1.0 documents/min"


def test_the_time_left_passes_and_no_loading_counts() -> None:
    clock = Clock()
    job = JobProgress(4, clock=clock)
    clock.now = 50.0
    job.ended(failed=False)
    assert job.line(79).after == "1.2 documents/min, about 2 min 30 s left"
    clock.now = 60.0
    job.ended(failed=True)
    clock.now = 64.0
    assert job.line(79).after == "1 failed, 6.0 documents/min, about 16.0 s left"
    clock.now = 99.0
    assert job.line(79).after.endswith("about 0.0 s left")


@given(
    st.integers(1, 200),
    st.one_of(st.none(), st.integers(2, 10**6)),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 10**6),
    st.floats(0, 10**6),
)
def test_it_always_fits(
    width: int, total: int | None, done: int, failed: int, skipped: int, seconds: float
) -> None:
    line = after(seconds, total, done, failed, skipped).line(width)
    bar = line.bar + 2 if line.bar else 0  # and a space on each side
    assert cell_len(line.before) + bar + cell_len(line.after) <= width
    assert 0 <= line.share <= 1


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_it_stands_below_the_line_of_the_document(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "10")
    screen = Screen(columns)
    console = make_console(screen)
    with LiveLine(console, stream_to=screen) as live:
        live.job = JobProgress(12, done=3, failed=1)
        live.start("report.pdf", number=5, total=12)
        live.phase("reading")
        live.write("Half a sen")
        live.phase("writing")
        text, document, job = screen.text.split("\n")
        assert text == "Half a sen"
        assert "document 5 of 12" in document
        assert job.startswith("3 of 12 documents ━━")
        live.write("x" * 20 * columns)
        live.phase("writing")
        assert len(screen.text.split("\n")) <= 9
    assert "document" not in screen.text
    assert screen.text.replace("\n", "").startswith("Half a sen")
