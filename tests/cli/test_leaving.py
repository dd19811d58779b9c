"""The end of the process, which leaves modules and libraries as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

# A command that leaves something to each of those who work at the end of a process.
BUSY = """
import atexit, logging.handlers, multiprocessing, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from specx.cli import main as frame
from specx.errors import UsageError

folder = Path(sys.argv.pop())

class TakenApart:
    def __del__(self):
        (folder / "taken apart").touch()

def busy(how: str) -> None:
    global left, pool, temporary
    left, temporary = TakenApart(), tempfile.TemporaryDirectory()
    Path(temporary.name, "file").touch()
    (folder / "temporary").write_text(temporary.name)
    atexit.register((folder / "registered").touch)
    atexit.register(print, "said at the end")
    threading.Thread(target=lambda: (time.sleep(0.2), (folder / "thread").touch())).start()
    pool = ThreadPoolExecutor(1)
    pool.submit(lambda: (time.sleep(0.2), (folder / "pool").touch()))
    multiprocessing.get_context("fork").Process(
        target=lambda: (time.sleep(0.2), (folder / "child").touch())
    ).start()
    file = logging.FileHandler(folder / "log")
    memory = logging.handlers.MemoryHandler(100, target=file)
    logging.getLogger("busy").addHandler(memory)
    logging.getLogger("busy").warning("logged")
    sys.stdout.write("a line of output\\n" * 20_000)
    if how == "fails":
        raise UsageError("it failed")
    sys.exit({"ends": 0, "ends with 7": 7, "says": "a sentence"}[how])

module = sys.modules["busy"] = type(sys)("busy")
module.busy = busy
frame.COMMANDS["busy"] = ("busy:busy", "Works.")
from specx.cli.entry import main
main()
"""
WORK = ["child", "pool", "registered", "thread"]


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        ("ends", 0, ""),
        ("ends with 7", 7, ""),
        ("fails", 2, "specx: it failed\n"),
    ],
)
def test_all_work_is_done(tmp_path: Path, how: str, code: int, told: str, to_file: bool) -> None:
    done, out = _run(tmp_path, how, to_file=to_file)
    assert (done.returncode, done.stderr) == (code, told)
    assert out == "a line of output\n" * 20_000 + "said at the end\n"
    assert sorted(set(WORK) & {path.name for path in tmp_path.iterdir()}) == WORK
    assert not Path((tmp_path / "temporary").read_text()).exists()
    assert (tmp_path / "log").read_text() == "logged\n"
    assert not (tmp_path / "taken apart").exists()


@pytest.mark.parametrize("options", [["-i"], ["-m", "cProfile"]])
def test_who_watches_goes_on(tmp_path: Path, options: list[str]) -> None:
    _, out = _run(tmp_path, "ends", *options)
    assert (tmp_path / "taken apart").exists()
    assert ("function calls" in out) == ("cProfile" in options)


def _run(
    folder: Path, how: str, *options: str, to_file: bool = False
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the command; return the finished process and its stdout, a pipe or a file."""
    program, output = folder / "program.py", folder / "out"
    program.write_text(BUSY)
    with output.open("w") as file:
        done = subprocess.run(
            [sys.executable, *options, program, "busy", how, folder],
            stdin=subprocess.DEVNULL,
            stdout=file if to_file else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    return done, output.read_text() if to_file else done.stdout
