"""Signals, from the first line of ``main`` on: one line, the shell's code, within a second."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.documents.pdfs import text_pdf

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
EXAMPLE = Path(__file__).parents[2] / "docs" / "example" / "report.pdf"
MOST_SECONDS = 1.0

# Signals that are ignored here, as in the background of a shell, are not there.
WATCHED = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

# The process says when signals are watched, and whether anything slow was imported before.
# Everything else is as in the console script.
BEGIN = """
import os, sys
from specx.cli.entry import main
from specx.cli.interruption import Interruption
writer, install = int(sys.argv.pop(1)), Interruption.install
def install_and_tell(self):
    install(self)
    os.write(writer, b"late" if "specx.cli.main" in sys.modules else b"first")
Interruption.install = install_and_tell
main()
"""


class Started:
    """A process of ``specx`` that watches signals; ``work``: code that runs before ``main``."""

    def __init__(self, arguments: Sequence[str], work: str = "", **options: object) -> None:
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", WATCHED + work + BEGIN, str(writer), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[writer],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            **options,  # type: ignore[call-overload]
        )
        os.close(writer)
        self.watching = os.read(reader, 5)
        assert self.watching, "it ended before it watched signals"
        os.close(reader)
        self.began = time.monotonic()

    def wait_for(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"{text!r} was never told")

    def end_by(self, number: signal.Signals) -> tuple[int, str, str, float]:
        """Exit code, stdout, stderr and the seconds after the signal."""
        sent = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err, time.monotonic() - sent


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "a.pdf"
    path.write_bytes(text_pdf(["The harbour master wrote a report about the ships."] * 3))
    return path


# ---------------------------------------------------------------- fast: commands that stand in

# A command that does one thing for long: a native call that keeps the interpreter from all other
# steps of the main thread, or an import that swallows exceptions.
SLOW = """
import sys
from specx.cli import main as frame
def slow() -> None:
    print("now", file=sys.stderr, flush=True)
    {what}
module = sys.modules["slow"] = type(sys)("slow")
module.slow = slow
frame.COMMANDS["slow"] = ("slow:slow", "Waits.")
"""
NATIVE = "import ctypes; ctypes.CDLL(None).sleep(30)"
SWALLOWING = """
    import time
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
"""


STUCK = "import time\nframe.Interruption.last_words = lambda self: time.sleep(30)\n"


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("what", [NATIVE, SWALLOWING], ids=["native", "swallowing"])
def test_it_ends_whatever_it_is_doing(what: str, number: signal.Signals) -> None:
    started = Started(["slow"], SLOW.format(what=what))
    started.wait_for("now")
    code, out, err, seconds = started.end_by(number)
    assert (code, out, err) == (
        CODES[number],
        "",
        "specx: interrupted before anything was written\n",
    )
    assert seconds < MOST_SECONDS


def test_it_ends_at_the_very_beginning() -> None:
    for delay in (0.002, 0.02, 0.06):
        started = Started(["profiles", "ls"])
        assert started.watching == b"first"
        time.sleep(delay)
        code, _, err, seconds = started.end_by(signal.SIGINT)
        assert (code, err.count("\n")) == (130, 1)
        assert err.startswith("specx: interrupted")
        assert seconds < MOST_SECONDS


def test_what_the_caller_ignores_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    started = Started(["slow"], ignoring + SLOW.format(what="import time; time.sleep(0.5)"))
    started.wait_for("now")
    assert started.end_by(signal.SIGHUP)[0] == 0


def test_last_words_that_never_end_are_cut_off() -> None:
    started = Started(["slow"], SLOW.format(what="import time; time.sleep(30)") + STUCK)
    started.wait_for("now")
    code, _, err, seconds = started.end_by(signal.SIGTERM)
    assert (code, err) == (143, "specx: interrupted\n")
    assert seconds < MOST_SECONDS


SLOWLY = """
def last_words(self):
    time.sleep(0.35)
    return "interrupted; it took a while"
frame.Interruption.last_words = last_words
"""


def test_a_signal_that_came_with_the_first_cuts_nothing_off() -> None:
    started = Started(["slow"], SLOW.format(what="import time; time.sleep(30)") + STUCK + SLOWLY)
    started.wait_for("now")
    started.process.send_signal(signal.SIGTERM)
    time.sleep(0.02)  # two that wait to be delivered are one
    assert started.end_by(signal.SIGTERM)[2] == "specx: interrupted; it took a while\n"


def test_a_second_signal_does_not_wait() -> None:
    started = Started(["slow"], SLOW.format(what="import time; time.sleep(30)") + STUCK)
    started.wait_for("now")
    started.process.send_signal(signal.SIGINT)
    time.sleep(0.25)
    code, _, err, seconds = started.end_by(signal.SIGINT)
    assert (code, err) == (130, "specx: interrupted\n")
    assert seconds < 0.3


# A signal at the very moment at which a command that has done its work says so.
AT_THE_END = """
import os, signal
from specx.cli.interruption import Interruption
class Lock:
    def __init__(self, lock):
        self.lock = lock
    def acquire(self, blocking=True):
        got = self.lock.acquire(blocking)
        os.kill(os.getpid(), signal.SIGTERM)
        return got
begin = Interruption.__init__
def begin_with_lock(self):
    begin(self)
    self._ending = Lock(self._ending)
Interruption.__init__ = begin_with_lock
"""


def test_a_signal_while_it_ends_does_not_keep_it() -> None:
    started = Started(["profiles", "ls"], AT_THE_END)
    out, err = started.process.communicate(timeout=60)
    assert (started.process.returncode, err) == (0, "")
    assert "mini" in out


NO_THREADS = """
import _thread
def refuse(*_):
    raise RuntimeError("can't start new thread")
old = frame.Interruption._stop
def stop(self, number):
    _thread.start_new_thread = refuse
    old(self, number)
frame.Interruption._stop = stop
"""
NO_PROC = """
import os
def refuse(*_):
    raise FileNotFoundError(2, "No such file or directory", "/proc")
os.listdir = refuse
"""


@pytest.mark.parametrize("lacking", [NO_THREADS, NO_PROC], ids=["threads", "proc"])
def test_it_ends_where_the_system_gives_nothing(lacking: str) -> None:
    started = Started(["slow"], SLOW.format(what="import time; time.sleep(30)") + lacking)
    started.wait_for("now")
    code, _, err, seconds = started.end_by(signal.SIGTERM)
    assert (code, err) == (143, "specx: interrupted before anything was written\n")
    assert seconds < MOST_SECONDS


RAISING = """
import os, time
from specx.cli import main as frame
def slow(context: frame.typer.Context) -> None:
    interruption = context.obj.interruption
    try:
        with interruption.raising():
            print("now", file=sys.stderr, flush=True)
            time.sleep(30)
    except KeyboardInterrupt:
        print("kept")
        interruption.sentence = lambda: "interrupted; it is kept"
        time.sleep(float(os.environ.get("KEEPING", 0)))
        raise
"""


@pytest.mark.parametrize("number", CODES)
def test_a_command_may_keep_what_it_has(number: signal.Signals) -> None:
    started = Started(["slow"], SLOW.format(what="") + RAISING + "module.slow = slow\n")
    started.wait_for("now")
    assert started.end_by(number)[:3] == (
        CODES[number],
        "kept\n",
        "specx: interrupted; it is kept\n",
    )


def test_a_command_that_keeps_for_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPING", "30")
    started = Started(["slow"], SLOW.format(what="") + RAISING + "module.slow = slow\n")
    started.wait_for("now")
    started.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    code, _, err, seconds = started.end_by(signal.SIGTERM)
    assert (code, err) == (143, "specx: interrupted; it is kept\n")
    assert seconds < MOST_SECONDS


# The interpreter is kept from all other threads, again and again: as by freeing a GPU's memory.
BUSY = (
    RAISING.replace('print("kept")', 'hold(4); print("kept")').replace("time.sleep", "hold")
    + """
import ctypes
def hold(times: float) -> None:
    for _ in range(int(times)):
        ctypes.PyDLL(None).usleep(250_000)
"""
)


def test_signals_that_come_together_are_one_however_late_they_are_noticed() -> None:
    """``timeout`` sends one to the process and one to its group."""
    started = Started(["slow"], SLOW.format(what="") + BUSY + "module.slow = slow\n")
    started.wait_for("now")
    started.process.send_signal(signal.SIGTERM)
    time.sleep(0.02)  # two that wait to be delivered are one
    assert started.end_by(signal.SIGTERM)[:3] == (
        CODES[signal.SIGTERM],
        "kept\n",
        "specx: interrupted; it is kept\n",
    )


# ---------------------------------------------------------------- the summary of a document


def children(process: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found.add(int(stat.parent.name))
        except OSError:
            continue
    return found


def below(process: int) -> set[int]:
    """Its children, theirs, and so on."""
    return set().union(*({each} | below(each) for each in children(process)))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_no_reader_survives_nor_what_it_started(report: Path) -> None:
    slow = "import specx.documents.child as p, pathlib\np._WORKER = pathlib.Path('{}')\n"
    worker = report.parent / "worker.py"
    worker.write_text("import subprocess; subprocess.run(['sleep', '30'])")
    started = Started(["--debug", "summarize", str(report)], slow.format(worker))
    started.wait_for("reading")
    deadline = time.monotonic() + 10
    while len(readers := below(started.process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(readers) == 2
    code, _, err, seconds = started.end_by(signal.SIGTERM)
    assert (code, err) == (143, "specx: interrupted before anything was written\n")
    assert seconds < MOST_SECONDS
    time.sleep(0.1)
    left = {reader for reader in readers if Path(f"/proc/{reader}").exists()}
    assert not {r for r in left if ") Z " not in Path(f"/proc/{r}/stat").read_text()}


CONFINED = """
import sys, time
sys.path.insert(0, {root!r})
from specx.documents.confinement import confine
confine(programs=False, processes=False)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells children of the end")
def test_no_reader_survives_a_killed_process(report: Path) -> None:
    worker = report.parent / "worker.py"
    worker.write_text(CONFINED.format(root=str(EXAMPLE.parents[2])))
    slow = "import specx.documents.child as c, pathlib\nc._WORKER = pathlib.Path({!r})\n"
    (report.parent / "b.pdf").write_bytes(report.read_bytes())  # read in a thread
    started = Started(["summarize", str(report.parent)], slow.format(str(worker)))
    deadline = time.monotonic() + 20
    while not (readers := children(started.process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)  # until they are confined
    started.process.kill()
    started.process.communicate()
    deadline = time.monotonic() + 5
    while (left := {r for r in readers if alive(r)}) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert readers
    assert left == set()


def alive(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("out", [False, True], ids=["stdout", "folder"])
def test_two_hundred_signals(tmp_path: Path, out: bool) -> None:
    """Signals spread over the life of a process that summarizes the example report."""
    folder = tmp_path / "OUT"
    arguments = ["summarize", str(EXAMPLE), "-q", *(["--out", str(folder)] if out else [])]
    whole = Started(arguments)
    whole.process.communicate()
    life = time.monotonic() - whole.began
    wrong, draw = [], random.Random(0)
    for number in range(100):
        kind = list(CODES)[number % len(CODES)]
        started = Started(arguments)
        time.sleep(life * (number + draw.random()) / 100)
        code, written, err, seconds = started.end_by(kind)
        finished = code == 0 and not err and (written.strip() or folder.exists())
        told = code == CODES[kind] and err.startswith("specx: interrupted") and err.count("\n") == 1
        where = err.strip().rpartition(" is in ")[2] if " is in " in err else None
        kept = where is None or Path(where).read_text().strip()
        left = list(folder.rglob("*.tmp"))
        if not (finished or (told and kept)) or seconds > MOST_SECONDS or left:
            wrong.append((number, kind, code, err, round(seconds, 2), left))
    assert wrong == []
