"""A stdout that cannot show every character: nothing is lost, and one line says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specx.runs import summarizer
from tests.cli.processes import exit_code, fork_specx, read_all
from tests.runs import pairs

ECHO = """
import sys
from specx.cli import main as frame
def echo(quiet: bool = False) -> None:
    sys.stdout.write("caf\\u00e9 \\u2013 \\U0001f6a2 \\udce9\\n")
module = sys.modules["echo"] = type(sys)("echo")
module.echo = echo
frame.COMMANDS["echo"] = ("echo:echo", "Echoes.")
frame.main()
"""
ESCAPED = "caf\\u00e9 \\u2013 \\ud83d\\udea2 \\udce9\n"


def echo(encoding: str, *options: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", ECHO, "echo", *options],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode()


def test_nothing_is_lost() -> None:
    assert echo("ascii") == (
        0,
        ESCAPED,
        "specx: stdout is ascii and cannot show 4 characters; they were written as \\uXXXX. Set "
        "PYTHONIOENCODING=utf-8, or write a file with --out\n",
    )
    code, out, err = echo("latin-1")
    assert (code, out) == (0, ESCAPED.replace("\\u00e9", "é"))
    assert "cannot show 3 characters" in err


def test_quiet_keeps_the_warning() -> None:
    assert echo("ascii", "--quiet") == echo("ascii")


def test_those_who_chose_otherwise() -> None:
    assert echo("ascii:replace") == (0, "caf? ? ? ?\n", "")


@pytest.mark.parametrize("form", ["text", "--json"])
def test_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:

    summary = "Größe – “long”."
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(summarizer, "decode", pairs.saying(summary))
    Path("ä.txt").write_text(pairs.TEXT)
    profile = pairs.write_profile(tmp_path)
    (from_out, out), (from_err, err) = os.pipe(), os.pipe()
    options = ["summarize", "ä.txt", "-p", profile, *([form] if form != "text" else [])]
    process = fork_specx(options, out, err, encoding="ascii")
    os.close(out)
    os.close(err)
    written, told = read_all(from_out, from_err)
    assert exit_code(process) == 0
    if form == "--json":  # escaped as JSON itself does
        assert json.loads(written)["summary"] == summary
    else:
        assert written == "Gr\\u00f6\\u00dfe \\u2013 \\u201clong\\u201d.\n"
    assert told.count("specx: stdout is ascii and cannot show") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize("form", ["text", "--json", "--jsonl"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(summarizer, "decode", pairs.saying("A summary."))
    Path("a.txt").write_text(pairs.TEXT)
    profile = pairs.write_profile(tmp_path)
    full = os.open("/dev/full", os.O_WRONLY)
    from_err, err = os.pipe()
    options = ["summarize", "a.txt", "-q", "-p", profile, *([form] if form != "text" else [])]
    process = fork_specx(options, full, err)
    os.close(full)
    os.close(err)
    (told,) = read_all(from_err)
    assert exit_code(process) == 2
    assert told == (
        "specx: cannot write to stdout: No space left on device; make room, or send the output "
        "elsewhere\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="has no poll")
def test_a_reader_of_help_that_leaves() -> None:
    """rich writes the help of commands; it puts /dev/null in the place of a closed stdout."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "specx", "summarize", "--help"]
    ended = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "")
