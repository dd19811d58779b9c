"""The live line, and the summary on the same terminal."""

import io
import re
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console

from specx.cli.console import make_console
from specx.records import FellBack, Finished, PrefillProgress, Step, Timings
from specx.reports.live import LiveLine
from specx.reports.progress import Progress, closing_line, duration
from tests.reports.examples import STEPS, make_report
from tests.reports.screen import Screen

CLOSING = "report.pdf: 2 sentences, 11 tokens in 2.0 s (20.0 tokens/s, acceptance length 2.25)"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "10")
    return Screen()


# ---------------------------------------------------------------- words


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_words_of_every_phase() -> None:
    clock = Clock()
    progress = Progress("report.pdf", limit=31, clock=clock)
    progress.enter("reading")
    clock.now = 1.5
    assert (progress.title(), progress.figures()) == ("report.pdf: reading", "1.5 s")
    progress.on(PrefillProgress("target", 4096, 16234))
    assert progress.title() == "report.pdf: reading prompt"
    assert progress.figures() == "4,096 of 16,234 tokens (target), 1.5 s"
    progress.on(STEPS[0])
    assert progress.figures() == "1 token, 1.5 s"
    for step in STEPS[1:]:
        progress.on(step)
    assert progress.title() == "report.pdf: writing"
    assert progress.figures() == (
        "11 tokens, 20.0 tokens/s, acceptance length 2.25, 1.5 s, at most 1.0 s left"
    )
    progress.on(FellBack(speedup=0.8, below=1.0))
    progress.on(STEPS[-1])
    assert progress.title() == "report.pdf: writing without drafts"
    progress.on(Finished("end", Timings()))
    assert progress.tally.tokens == 12


def test_parts_have_a_limit_each() -> None:
    progress = Progress("a.pdf", limit=11, clock=Clock())
    for part in (1, 2):
        progress.enter_part(part, 3)
        for step in STEPS:
            progress.on(step)
    assert progress.title() == "a.pdf (part 2 of 3): writing"
    assert progress.figures().startswith("22 tokens, ")
    assert progress.figures().endswith("at most 0.0 s of this part left")


def test_names_are_short_and_harmless() -> None:
    progress = Progress("x" * 60 + "/\x1b[2Jend.pdf", phase="reading")
    assert progress.title() == "…" + "x" * 27 + "/�[2Jend.pdf: reading"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (4.06, "4.1 s"),
        (59.97, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3725, "1 h 02 min"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_closing_line() -> None:
    report = make_report()
    assert closing_line(report) == CLOSING
    report.citations.clear()
    report.tally = type(report.tally)()
    report.tally.add(Step(tokens=(1,), drafted=0, accepted=0, seconds=0.5))
    assert closing_line(report) == "report.pdf: 1 token in 2.0 s (2.0 tokens/s)"


# ---------------------------------------------------------------- terminals


def run(live: LiveLine, pause: float = 0.0) -> None:
    """A document as the command line shows it."""
    with live:
        live.start("report.pdf", limit=64)
        live.phase("reading")
        live.on(PrefillProgress("target", 4096, 8901))
        time.sleep(pause)
        live.on(PrefillProgress("draft", 8901, 8901))
        for step, text in zip(
            STEPS, ("The", " first.\nThe ", "second.\n\n", "A third,"), strict=False
        ):
            live.on(step)
            live.write(text)
            time.sleep(pause)
        live.on(Finished("end", Timings()))
        live.done(make_report())


SUMMARY = "The first.\nThe second.\n\nA third,"


def test_one_terminal_shows_summary_and_closing_line_only(screen: Screen) -> None:
    run(LiveLine(make_console(screen), stream_to=screen), pause=0.15)
    assert screen.text == f"{SUMMARY}\n{CLOSING}"
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", screen.raw)
    assert "reading prompt ━" in drawn
    assert "4,096 of 8,901 tokens (target)" in drawn
    assert "acceptance length 1.50, " in drawn


def test_the_unfinished_line_is_seen_above_the_live_line(screen: Screen) -> None:
    with LiveLine(make_console(screen), stream_to=screen) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("Done.\nHalf a sen")
        time.sleep(0.25)
        done, half, status = screen.text.split("\n")
        assert (done, half) == ("Done.", "Half a sen")
        assert status.startswith("report.pdf: writing, ")
    assert screen.text == "Done.\nHalf a sen"


def test_a_long_line_leaves_room_for_the_live_line(screen: Screen) -> None:
    with LiveLine(make_console(screen), stream_to=screen) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("x" * 119 + "y")
        live.write("z" * 120 * 20)
        time.sleep(0.25)
        assert len(screen.text.split("\n")) == 9
        assert "y" not in screen.text.replace("report.pdf: writing", "")
    assert screen.text == "x" * 119 + "y" + "z" * 2400


def test_an_interruption_keeps_what_was_written(screen: Screen) -> None:
    with suppress(KeyboardInterrupt), LiveLine(make_console(screen), stream_to=screen) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("Half a sen")
        raise KeyboardInterrupt
    assert screen.text == "Half a sen"
    assert screen.column == 0


def test_no_terminal_has_only_the_closing_line() -> None:
    stderr = io.StringIO()
    run(LiveLine(make_console(stderr)))
    assert stderr.getvalue() == CLOSING + "\n"


def test_the_closing_line_of_a_long_name_is_one_line() -> None:
    stderr = io.StringIO()
    LiveLine(make_console(stderr)).done(make_report("n" * 300))
    assert stderr.getvalue().count("\n") == 1


def test_stdout_streams_when_stderr_is_a_file(screen: Screen) -> None:
    stderr = io.StringIO()
    run(LiveLine(make_console(stderr), stream_to=screen))
    assert screen.raw == SUMMARY + "\n"
    assert stderr.getvalue() == CLOSING + "\n"


def test_quiet_streams_and_says_nothing(screen: Screen) -> None:
    stderr = Screen()
    run(LiveLine(make_console(stderr, quiet=True), stream_to=screen))
    assert (stderr.raw, screen.raw) == ("", SUMMARY + "\n")


def test_no_color_means_no_control_sequences(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run(LiveLine(make_console(screen), stream_to=screen))
    assert screen.raw == f"{SUMMARY}\n{CLOSING}\n"


def test_the_model_cannot_command_the_terminal(screen: Screen) -> None:
    with LiveLine(make_console(io.StringIO()), stream_to=screen) as live:
        live.write("a\x1b]0;title\x07b\rc\td\n")
    assert screen.raw == "a]0;titlebc\td\n"


def test_two_documents_in_a_row(screen: Screen) -> None:
    live = LiveLine(make_console(screen), stream_to=screen)
    run(live)
    run(live)
    assert screen.text == f"{SUMMARY}\n{CLOSING}\n{SUMMARY}\n{CLOSING}"


def test_messages_go_above_the_live_line(screen: Screen) -> None:
    console: Console = make_console(screen)
    with LiveLine(console) as live:
        live.start("report.pdf")
        live.phase("reading")
        console.print("page 4 has no text")
    assert screen.text == "page 4 has no text"


# ---------------------------------------------------------------- a pipe for stdout


@pytest.mark.parametrize("steps_aside", [True, False])
def test_pieces_are_passed_on_and_the_line_may_step_aside(
    screen: Screen, steps_aside: bool
) -> None:
    pieces: list[str] = []
    console = make_console(screen)
    with LiveLine(console, pass_on=pieces.append, steps_aside=steps_aside) as live:
        for name in ("a.txt", "b.txt"):
            live.start(name)
            live.phase("writing")
            assert f"{name}: writing" in screen.text
            live.write("")
            assert f"{name}: writing" in screen.text  # nothing was passed on
            live.write("One.")
            live.on(STEPS[1])
            assert (f"{name}: writing" in screen.text) is not steps_aside
        live.done(make_report())
    assert "".join(pieces) == "One.One."
    assert screen.text.strip() == CLOSING


def test_a_document_that_no_model_read_has_no_closing_line(screen: Screen) -> None:
    report = make_report()
    report.input = replace(report.input, parts=0)
    with LiveLine(make_console(screen)) as live:
        live.start("a.txt")
        live.done(report)
    assert screen.text.strip() == ""
