"""The live line, and the summary on the same terminal."""

import io
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions

from specx.cli.console import make_console
from specx.records import FellBack, Finished, PrefillProgress, Step, Timings
from specx.reports.live import LiveLine
from specx.reports.progress import Progress, closing_line, duration, tokens_per_second
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


def figures(progress: Progress) -> str:
    return ", ".join(progress.figures().values())


def test_words_of_every_phase() -> None:
    clock = Clock()
    progress = Progress("report.pdf", limit=31, clock=clock)
    progress.enter("reading")
    clock.now = 1.5
    assert (progress.title(), figures(progress)) == ("report.pdf: reading", "1.5 s")
    progress.on(PrefillProgress("target", 4096, 16234))
    assert progress.title() == "report.pdf: reading prompt"
    assert figures(progress) == "4,096 of 16,234 tokens (target), 1.5 s"
    progress.on(STEPS[0])
    assert figures(progress) == "1 token, 1.5 s"
    for step in STEPS[1:]:
        progress.on(step)
    assert progress.title() == "report.pdf: writing"
    assert figures(progress) == (
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
    assert figures(progress).startswith("22 tokens, ")
    assert figures(progress).endswith("at most 0.0 s of this part left")


def test_names_are_short_and_harmless() -> None:
    progress = Progress("x" * 60 + "/\x1b[2J\u202eend.pdf", phase="reading", clock=Clock())
    assert progress.title() == "x" * 60 + "/��end.pdf: reading"
    assert progress.line(80).before == "…" + "x" * 29 + "/��end.pdf: reading, 0.0 s"


def test_the_clock_counts_from_the_beginning() -> None:
    clock = Clock()
    clock.now = 100.0
    progress = Progress("a.pdf", spent=7.5, clock=clock)
    clock.now = 101.0
    assert figures(progress) == "8.5 s"


PATH = "report/2026/annual-report-of-k.pdf"  # 34 characters


COUNTS = "11 tokens, 20.0 tokens/s, acceptance length 2.25"


def writing(**settings: Any) -> Progress:
    progress = Progress(PATH, clock=Clock(), **settings)
    for step in STEPS:
        progress.on(step)
    return progress


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, f"{PATH}: writing, {COUNTS}, 0.0 s, at most 1.0 s left"),
        (119, f"…{PATH[2:]}: writing, {COUNTS}, 0.0 s, at most 1.0 s left"),
        (99, f"…{PATH[-12:]}: writing, {COUNTS}, 0.0 s, at most 1.0 s left"),
        (79, f"…{PATH[-12:]}: writing, {COUNTS}, 0.0 s"),
        (69, f"writing, {COUNTS}, 0.0 s"),
        (59, "writing, 11 tokens, 20.0 tokens/s, acceptance length 2.25"),
        (39, "20.0 tokens/s, acceptance length 2.25"),
    ],
)
def test_the_name_gives_way_first(width: int, line: str) -> None:
    shown = writing(limit=31).line(width)
    assert (shown.before, shown.bar) == (line, 0)


@pytest.mark.parametrize(
    ("width", "before", "bar", "after"),
    [
        (119, f"{PATH}: reading prompt", 20, "4,096 of 16,234 tokens (target), 0.0 s"),
        (79, "reading prompt", 20, "4,096 of 16,234 tokens (target), 0.0 s"),
        (65, "reading prompt", 10, "4,096 of 16,234 tokens (target), 0.0 s"),
        (59, "reading prompt, 4,096 of 16,234 tokens (target), 0.0 s", 0, ""),
        (39, "reading prompt", 17, "0.0 s"),
    ],
)
def test_the_bar_gives_way_next(width: int, before: str, bar: int, after: str) -> None:
    progress = Progress(PATH, clock=Clock())
    progress.on(PrefillProgress("target", 4096, 16234))
    line = progress.line(width)
    assert (line.before, line.bar, line.after) == (before, bar, after)
    assert line.share == (pytest.approx(4096 / 16234) if bar else 0)


@given(
    st.integers(39, 200),
    st.text(max_size=60),
    st.integers(1, 3000),
    st.booleans(),
    st.sampled_from([0, 5, 5000]),
)
def test_rate_and_acceptance_always_show_and_all_fits(
    width: int, name: str, total: int, plainly: bool, spent: float
) -> None:
    progress = Progress(name, 512, spent, number=total, total=total)
    progress.enter_part(2, 3)
    for step in STEPS * 40:
        progress.on(step)
    if plainly:
        progress.on(FellBack(speedup=0.8, below=1.0))
    line = progress.line(width).before
    assert cell_len(line) <= width
    assert f"{tokens_per_second(progress.tally):.1f} tokens/s" in line
    assert f"acceptance length {progress.tally.acceptance_length:.2f}" in line


def test_the_place_among_several_documents() -> None:
    progress = Progress("a.pdf", number=3, total=12, phase="reading", clock=Clock())
    assert progress.title() == "a.pdf (document 3 of 12): reading"
    progress.enter_part(2, 5)
    assert progress.line(60).before == "a.pdf (document 3 of 12, part 2 of 5): reading, 0.0 s"
    assert progress.line(45).before == "document 3 of 12, part 2 of 5: reading, 0.0 s"
    progress = Progress("m.jsonl#7", number=7, total=None, phase="reading", clock=Clock())
    assert progress.title() == "m.jsonl#7 (document 7): reading"


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
        live.on(STEPS[0])  # the first token comes before the draft has read the prompt
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
    assert "report.pdf: reading prompt ━" in drawn
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
    assert screen.text.replace("\n", "") == "x" * 119 + "y" + "z" * 2400


def test_an_interruption_keeps_what_was_written(screen: Screen) -> None:
    with suppress(KeyboardInterrupt), LiveLine(make_console(screen), stream_to=screen) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("Half a sen")
        raise KeyboardInterrupt
    assert screen.text == "Half a sen"
    assert screen.column == 0


PLAIN = f"report.pdf: reading\nreport.pdf: reading prompt\nreport.pdf: writing\n{CLOSING}\n"


def test_without_a_terminal_each_phase_has_a_plain_line() -> None:
    stderr = io.StringIO()
    run(LiveLine(make_console(stderr), plain=True))
    assert stderr.getvalue() == PLAIN


def test_without_a_terminal_and_plain_lines_nothing_is_said() -> None:
    stderr = io.StringIO()
    run(LiveLine(make_console(stderr)))
    with LiveLine(make_console(stderr)) as live:
        live.follow(Progress("a.pdf", phase="loading models"))
    assert stderr.getvalue() == ""


def test_a_dumb_terminal_has_plain_lines(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    run(LiveLine(make_console(screen), plain=True))
    assert screen.raw == PLAIN


def test_a_phase_never_breaks_into_the_summary(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with LiveLine(make_console(screen), stream_to=screen, plain=True) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("Half a sen")
        live.on(FellBack(speedup=0.8, below=1.0))
        live.write("tence.\n")
    assert screen.text == "report.pdf: writing\nHalf a sentence."


def test_the_closing_line_of_a_long_name_is_one_line() -> None:
    stderr = io.StringIO()
    LiveLine(make_console(stderr), plain=True).done(make_report("n" * 300))
    assert stderr.getvalue().count("\n") == 1


def test_stdout_streams_when_stderr_is_a_file(screen: Screen) -> None:
    stderr = io.StringIO()
    run(LiveLine(make_console(stderr), stream_to=screen, plain=True))
    assert screen.raw == SUMMARY + "\n"
    assert stderr.getvalue() == PLAIN


def test_quiet_streams_and_says_nothing(screen: Screen) -> None:
    stderr = Screen()
    run(LiveLine(make_console(stderr, quiet=True), stream_to=screen, plain=True))
    assert (stderr.raw, screen.raw) == ("", SUMMARY + "\n")


def test_no_color_removes_colours_and_not_progress(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run(LiveLine(make_console(screen), stream_to=screen))
    assert screen.text == f"{SUMMARY}\n{CLOSING}"
    assert "reading prompt ━" in screen.raw
    assert not re.search(r"\x1b\[[0-9;]*m", screen.raw)


@pytest.mark.parametrize("change", [Screen.resize, Screen.reflow])
@pytest.mark.parametrize("columns", [(120, 80, 60, 40), (40, 60, 80, 120), (80, 40, 80, 40)])
def test_another_width_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    columns: tuple[int, ...],
    change: Callable[[Screen, int], None],
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(columns[0])
    console = make_console(screen)
    screen.write("$ specx summarize\n")
    with LiveLine(console, stream_to=screen) as live:
        live.start(PATH, limit=512)
        for step in STEPS:
            live.on(step)
        live.write("Done.\nHalf a sentence that is longer than the narrow terminal is wide")
        for width in columns:
            change(screen, width)
            console.size = ConsoleDimensions(width, 40)
            live.phase("writing")
            prompt, done, *half, status = screen.text.split("\n")
            assert (prompt, done) == ("$ specx summarize", "Done.")
            assert " ".join(half).startswith("Half a sentence that is longer than the narrow")
            assert "acceptance length 2.25" in status
            assert screen.column == 0
    shown = screen.text.split("\n")
    assert shown[:2] == ["$ specx summarize", "Done."]
    assert "".join(shown[2:]).replace(" ", "") == (
        "Halfasentencethatislongerthanthenarrowterminaliswide"
    )
    assert screen.cursor_is_shown


def test_an_abandoned_line_is_gone(screen: Screen) -> None:
    live = LiveLine(make_console(screen), stream_to=screen)
    live.start("report.pdf")
    live.phase("writing")
    live.write("Half a sen")
    live._region._lock.acquire()  # as if the main thread stood still while it draws
    thread = threading.Thread(target=live.abandon)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    live._region._lock.release()
    time.sleep(0.25)
    assert screen.text == "Half a sen"
    assert screen.cursor_is_shown


def test_the_model_cannot_command_the_terminal(screen: Screen) -> None:
    with LiveLine(make_console(io.StringIO()), stream_to=screen) as live:
        live.write("a\x1b]0;title\x07b\rc\td\n")
    assert screen.raw == "abc\td\n"


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


# ---------------------------------------------------------------- text that may still change


def test_what_may_change_is_drawn_and_the_final_text_takes_its_place(screen: Screen) -> None:
    stdout = Screen()
    with LiveLine(make_console(screen), stream_to=stdout) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.show("One.\n\nTwo, two, two, ")
        time.sleep(0.25)
        assert screen.text.startswith("One.\n\nTwo, two, two,\nreport.pdf: writing")
        assert stdout.raw == ""
        live.write("One.\n\nTwo.")
        time.sleep(0.25)
        assert screen.text.startswith("Two.\nreport.pdf: writing")
        live.done(make_report())
    assert screen.text == CLOSING
    assert stdout.raw == "One.\n\nTwo.\n"


def test_an_interruption_keeps_what_might_have_changed(screen: Screen) -> None:
    with suppress(KeyboardInterrupt), LiveLine(make_console(screen), stream_to=screen) as live:
        live.start("report.pdf")
        live.phase("writing")
        live.write("## Part 1")
        live.show("\n\nHalf a sen")
        raise KeyboardInterrupt
    assert screen.text == "## Part 1\n\nHalf a sen"
    assert screen.column == 0


def test_without_a_terminal_for_stderr_only_the_final_text_is_seen(screen: Screen) -> None:
    with LiveLine(make_console(io.StringIO()), stream_to=screen) as live:
        live.show("One, one, one")
        live.write("One.\n")
    assert screen.raw == "One.\n"


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


def test_the_closing_line_of_a_document_that_no_model_read_says_why(screen: Screen) -> None:
    report = make_report()
    report.notes = ["it is short, so it is printed as it is"]
    report.input = replace(report.input, parts=0)
    with LiveLine(make_console(screen)) as live:
        live.start("a.txt")
        live.done(report)
    assert screen.text.strip() == "report.pdf: it is short, so it is printed as it is"
