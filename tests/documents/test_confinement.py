"""A reader that a document has taken over: it gets at nothing, and the user is told."""

import platform
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specx.documents import confinement
from specx.documents.child import ChildRequest, answers, run_child
from specx.errors import DocumentError

from .conftest import SaveFile

STOPPED = (
    "evil.pdf made the PDF reader write a file, start a program or use the network, and was "
    "stopped; do not trust this file"
)
ROOT = str(Path(confinement.__file__).parents[2])


@cache
def in_force() -> str:
    """What this kernel and machine can do, as a child process of its own finds out."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from specx.documents.confinement import confine\n"
        "print(*confine(programs=False))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ROOT], capture_output=True, text=True, check=True
    )
    return done.stdout


def needs(what: str) -> None:
    if what not in in_force():
        pytest.skip(f"this kernel cannot confine {what}")


def serve(
    save: SaveFile,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    **details: Any,
) -> list[dict[str, Any]]:
    """Return the answers of a worker of which a document has made ``code``, a generator's body."""
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    path = save("evil_worker.py", f"import os\ndef serve(request):\n{body}\n".encode())
    monkeypatch.syspath_prepend(Path(path).parent)
    request = ChildRequest(
        name="evil.pdf",
        path=None,
        data=b"",
        time_limit_s=20,
        memory_limit_bytes=2**30,
        reader="PDF reader",
    )
    return list(answers(run_child("evil_worker", request, details)))


@pytest.mark.parametrize(
    ("needed", "code"),
    [
        ("calls", "import socket; socket.socket()"),
        ("calls", "import socket; socket.socket(socket.AF_UNIX)"),
        ("calls", "import subprocess; subprocess.run(['true'])"),
        ("calls", "os.execv('/bin/true', ['true'])"),
        ("calls", "os.fork()"),
        ("calls", "os.chmod(request['there'], 0o777)"),
        ("files", "open(request['there'], 'w')"),
        ("files", "open(request['there'], 'a').write('x')"),
        ("files", "open(request['new'], 'w')"),
        ("files", "os.remove(request['there'])"),
        ("files", "os.rename(request['there'], request['new'])"),
        ("files", "os.mkdir(request['new'])"),
        ("files", "os.symlink('/', request['new'])"),
        ("files", "os.truncate(request['there'], 0)"),
    ],
)
def test_it_gets_at_nothing(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needed: str, code: str
) -> None:
    needs(needed)
    there, new = Path(save("there.txt", b"mine")), tmp_path / "new"
    there.chmod(0o600)
    with pytest.raises(DocumentError) as caught:
        serve(save, monkeypatch, f"{code}\nyield {{}}", there=str(there), new=str(new))
    assert str(caught.value) == STOPPED
    assert (there.read_bytes(), there.stat().st_mode & 0o777) == (b"mine", 0o600)
    assert not new.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limits")
def test_where_the_kernel_cannot_the_limits_alone_keep_files_from_growing(save: SaveFile) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from specx.documents.child_worker import _limit_process\n"
        "_limit_process(2**30, 10)\n"
        "open(sys.argv[2], 'ab', 0).write(b'x')"
    )
    there = Path(save("there.txt", b"mine"))
    done = subprocess.run(
        [sys.executable, "-c", program, ROOT, str(there)], capture_output=True, text=True
    )
    assert "File too large" in done.stderr
    assert there.read_bytes() == b"mine"


def test_it_may_still_read_and_use_threads(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        import threading
        found = []
        thread = threading.Thread(target=lambda: found.append(open(request["there"]).read()))
        thread.start()
        thread.join()
        yield {"found": found}
    """
    there = save("there.txt", b"text")
    assert serve(save, monkeypatch, code, there=there) == [{"found": ["text"]}]


def test_programs_where_they_are_allowed(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        import subprocess, sys
        program = "import socket; socket.socket()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True)
        yield {"run": b"PermissionError" in done.stderr}  # it inherits the rest
    """
    needs("calls")
    assert serve(save, monkeypatch, code, allowed=["programs"]) == [{"run": True}]


def test_an_endless_output_is_ended(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        while True:
            yield {"x" * 2**20: 1}
    """
    (*_, last) = serve(save, monkeypatch, code)
    assert last == {"error": "memory"}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has these")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_of_the_calls(machine: str) -> None:
    """Held to a few that everybody knows, and to being different from each other."""
    column = confinement._MACHINES[machine].column
    groups = (
        confinement._NETWORK,
        confinement._FILES,
        confinement._SYSTEM,
        confinement._PROGRAMS,
        confinement._PROCESSES,
    )
    numbers = [each[column] for group in groups for each in group.values() if each[column]]
    assert len(numbers) == len(set(numbers))
    known = {"x86_64": (41, 59, 56), "aarch64": (198, 221, 220)}[machine]
    assert known == (
        confinement._NETWORK["socket"][column],
        confinement._PROGRAMS["execve"][column],
        confinement._CLONE[column],
    )


def test_another_machine_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")
    assert confinement.confine(programs=False) == frozenset()
