"""Slow packages, imported beside other work."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specx.cli import summary_run
from specx.cli.summary_run import import_torch
from specx.cores import without_collecting
from specx.documents.discover import discover
from specx.runs.inputs import takes_a_while


def test_it_imports_beside_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def slow(name: str) -> None:
        time.sleep(0.05)
        seen.append(name)

    monkeypatch.setattr(summary_run.importlib, "import_module", slow)
    work = import_torch()
    assert work.is_alive()
    work.join()
    assert seen == ["torch"]


def test_what_cannot_be_imported_is_told_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(summary_run.importlib, "import_module", fails)
    work = import_torch()
    work.join()
    assert not work.is_alive()


def test_garbage_is_looked_for_again_after_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(
        summary_run.importlib, "import_module", lambda _: seen.append(gc.isenabled())
    )
    import_torch().join()
    assert seen == [False]
    assert gc.isenabled()
    with pytest.raises(ImportError), without_collecting():
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0  # extensions complain at the end of what is never freed


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
        "from specx.cli import summary_run as module\n"
        "module._import_torch = lambda: time.sleep(60)\n"
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
