"""Slow packages, imported beside other work."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specx.cli import main as cli
from specx.cores import LoadMonitor, without_collecting
from specx.documents.discover import discover
from specx.runs import torch_import as module
from specx.runs.inputs import takes_a_while
from specx.runs.torch_import import TorchImport


@pytest.fixture
def torch_import(monkeypatch: pytest.MonkeyPatch) -> TorchImport:
    monkeypatch.setattr(module.os, "environ", {})
    return TorchImport(LoadMonitor())


def test_it_imports_beside_and_is_waited_for(
    torch_import: TorchImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def slow(name: str) -> None:
        time.sleep(0.05)
        seen.append(name)

    monkeypatch.setattr(module.importlib, "import_module", slow)
    assert not torch_import.is_working
    torch_import.start()
    assert torch_import.is_working
    torch_import.wait()
    assert seen == ["torch"]


def test_what_cannot_be_imported_is_told_where_it_is_used(
    torch_import: TorchImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(module.importlib, "import_module", fails)
    torch_import.start()
    torch_import.wait()
    assert not torch_import.is_working


def test_garbage_is_looked_for_again_after_the_imports(
    torch_import: TorchImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(module.importlib, "import_module", lambda _: seen.append(gc.isenabled()))
    torch_import.start()
    torch_import.wait()
    assert seen == [False]
    assert gc.isenabled()
    with pytest.raises(ImportError), without_collecting():
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0  # extensions complain at the end of what is never freed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], None),
        (["a.pdf", "--threads", "3"], 3),
        (["--threads=3", "a.pdf"], 3),
        (["--threads", "3", "--threads=1"], 1),
    ],
)
def test_openmp_is_told_before_the_library_brings_it(
    arguments: list[str],
    expected: int | None,
    torch_import: TorchImport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(
        module, "_load_library", lambda: seen.append(module.os.environ.get("OMP_NUM_THREADS"))
    )
    torch_import.load_library(arguments)
    torch_import.wait()
    if expected is not None:
        assert seen == [str(expected)]
    chosen = torch_import.choose_threads(expected)  # what is set by now is not taken for the user's
    assert (chosen.number, chosen.fixed) == (expected or chosen.number, expected is not None)
    assert len(seen) == 1


def test_wrong_threads_are_left_to_the_parser(
    torch_import: TorchImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(module, "_load_library", lambda: pytest.fail("it is loaded"))
    torch_import.load_library(["--threads", "many"])
    assert not torch_import.is_working


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["summarize", "a.pdf"], True),
        (["ask", "a.pdf", "Why?"], True),
        (["summarize", "a.pdf", "--workers", "2"], False),
        (["summarize", "a.pdf", "--workers=2"], False),
        (["summarize", "--help"], False),
        (["extract", "a.pdf"], False),
    ],
)
def test_the_library_is_loaded_for_commands_that_need_it(
    arguments: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[list[str]] = []
    monkeypatch.setattr(TorchImport, "load_library", lambda _, rest: loaded.append(rest))
    monkeypatch.setattr(cli, "load_command", lambda _: pytest.fail("no more is needed"))
    with pytest.raises(pytest.fail.Exception):
        cli.run(arguments)
    assert loaded == [arguments[1:]] * expected


@pytest.mark.skipif(sys.platform != "linux", reason="libraries of other names")
def test_the_library_is_loaded_before_torch() -> None:
    code = (
        "import ctypes, os, sys, time\n"
        "from pathlib import Path\n"
        "from specx.cores import LoadMonitor\n"
        "from specx.runs.torch_import import TorchImport\n"
        "importing = TorchImport(LoadMonitor())\n"
        "importing.load_library([])\n"
        "importing.wait()\n"
        "assert 'libtorch_cpu.so' in Path('/proc/self/maps').read_text()\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert (torch.ones(3, 4) @ torch.ones(4)).tolist() == [4, 4, 4]\n"
        "paths = Path('/proc/self/maps').read_text().splitlines()\n"
        "assert len({line.split()[-1] for line in paths if 'libtorch_cpu.so' in line}) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "expected"), [("a.pdf", True), ("a.docx", True), ("-", True), ("a.txt", False)]
)
def test_only_reading_that_leaves_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.pdf").touch()
    Path("a.docx").touch()
    Path("a.txt").touch()
    assert takes_a_while(discover([name])) == expected
    assert not takes_a_while([])


def test_a_process_does_not_wait_for_what_nobody_needs(tmp_path: Path) -> None:
    """A broken PDF is refused while torch is still being imported."""
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 and no more")
    code = (
        "import time\n"
        "from specx.runs import torch_import as module\n"
        "module._import = lambda: time.sleep(60)\n"
        "from specx.cli.main import main\n"
        f"main(['summarize', {str(broken)!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 3
    assert "broken.pdf" in done.stderr


def test_a_summary_does_without_transformers(tmp_path: Path) -> None:
    """From the file to the end of the summary, with the embedded models."""
    text = tmp_path / "report.txt"
    text.write_text("The harbour of Vell had 1,204 ships in the year. It was a good year. " * 40)
    code = (
        "import sys\n"
        "from specx.cli.main import main\n"
        "try:\n"
        f"    main(['summarize', {str(text)!r}, '-p', 'mini', '--device', 'cpu'])\n"
        "finally:\n"
        "    print(*sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    imported = set(done.stderr.splitlines())
    assert done.returncode == 0, done.stderr
    assert "torch" in imported
    assert not {"transformers", "huggingface_hub", "matplotlib"} & imported
