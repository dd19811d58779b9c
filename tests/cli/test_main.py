"""The frame of the command line: what is imported when, and errors as exit codes."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specx import __version__
from specx.cli import main as cli
from specx.cli.interruption import Interruption
from specx.cli.main import COMMANDS, app, run
from specx.errors import (
    BatchError,
    DivergenceError,
    DocumentError,
    ModelError,
    OutOfMemoryError,
    ProfileError,
    SpecxError,
    UsageError,
)

SPECX = [sys.executable, "-m", "specx"]


def specx(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SPECX, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int | str | None]:
    """Runs ``specx fail``, a command that raises the given error, and returns the exit code."""

    def run_failing(error: BaseException, *options: str) -> int | str | None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(sys.modules[__name__], "fail", fail, raising=False)
        monkeypatch.setitem(COMMANDS, "fail", (f"{__name__}:fail", "Fails."))
        return run([*options, "fail"])

    return run_failing


# ---------------------------------------------------------------- what is imported


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["profiles", "ls"]])
def test_heavy_packages_are_not_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from specx.cli.main import run; code = run(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'pypdf', 'numpy', 'rich'} & set(sys.modules); "
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "0 []\n"


def test_help_starts_fast() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        specx("--help")
        times.append(time.perf_counter() - start)
    assert statistics.median(times) <= 0.4  # seconds, the interpreter's start included


def test_help_lists_every_command_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "ghost", ("specx.cli.ghost:ghost", "Not there."))
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name, (_, about) in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert about in result.stdout


def test_a_loaded_command_has_its_own_help() -> None:
    result = CliRunner().invoke(app, ["profiles", "--help"])
    assert result.exit_code == 0
    assert "validate" in result.stdout


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"specx {__version__}\n")


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecxError, 1),
        (UsageError, 2),
        (ProfileError, 2),
        (DocumentError, 3),
        (ModelError, 4),
        (OutOfMemoryError, 5),
        (DivergenceError, 6),
        (BatchError, 7),
    ],
)
def test_an_error_is_one_sentence_and_its_code(
    failing: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    error: type[SpecxError],
    code: int,
) -> None:
    assert failing(error("this is wrong; do that")) == code
    assert capsys.readouterr() == ("", "specx: this is wrong; do that\n")


def test_debug_shows_the_traceback(
    failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(DocumentError("empty"), "--debug") == 3
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):")
    assert shown.endswith("\nspecx: empty\n")


def test_an_unexpected_error_names_itself(
    failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(ZeroDivisionError("division\n by zero.")) == 1
    assert capsys.readouterr().err == (
        "specx: unexpected ZeroDivisionError: division by zero; "
        "`specx --debug …` shows where it happened\n"
    )


class _TorchWithOutOfMemory:
    class OutOfMemoryError(RuntimeError):
        pass


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        _TorchWithOutOfMemory.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory(
    failing: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", _TorchWithOutOfMemory)  # type: ignore[arg-type]
    assert failing(error) == 5
    assert capsys.readouterr().err.startswith("specx: out of memory; use a smaller model")


def test_ctrl_c(failing: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "specx: interrupted before anything was written\n"


def test_an_error_cannot_control_the_terminal(
    failing: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(DocumentError("a\x1b[2Jb.txt is empty\r")) == 3
    assert capsys.readouterr().err == "specx: a�b.txt is empty�\n"


def test_a_broken_pipe_of_our_own_is_an_error(failing: Callable[..., int]) -> None:
    assert failing(BrokenPipeError(32, "Broken pipe")) == 1


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["no-such-command"], []])
def test_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: specx" in result.stderr


def test_a_command_with_a_slip_is_suggested() -> None:
    assert "Did you mean 'profiles'?" in CliRunner().invoke(app, ["profils"]).stderr


# ---------------------------------------------------------------- the real process


def test_process_exit_codes() -> None:
    failed = specx("profiles", "show", "minni")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("specx: there is no profile 'minni'")
    assert specx("profiles", "sow").returncode == 2


def test_main_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["specx", "--version"])
    monkeypatch.setattr(Interruption, "install", lambda _: None)  # not the signals of the tests
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0


posix = pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")


@posix
@pytest.mark.parametrize("arguments", ["--help", "profiles ls", "profiles show mini"])
def test_a_closed_pipe_ends_quietly(arguments: str) -> None:
    read, write = os.pipe()
    os.close(read)  # the reader is gone before anything is written
    try:
        process = subprocess.run(
            [*SPECX, *arguments.split()], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert (process.returncode, process.stderr) == (0, b"")


@posix
def test_a_process_without_stdout() -> None:
    script = f"{sys.executable} -m specx profiles ls >&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SPECX, "profiles", "ls"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (
        2,
        b"specx: cannot write to stdout: No space left on device; make room, or send the output "
        b"elsewhere\n",
    )
