"""Every recipe of ``docs/pipelines.md``, run as it stands there with this package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pipelines.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
DOCUMENTS = ("docs/a.txt", "docs/b c.txt", "docs/d.txt", "docs/x/e.txt")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="recipes for a POSIX shell")


def recipe(*words: str) -> str:
    """The one block of the page with all these words."""
    (found,) = (text for _, text in BLOCKS if all(word in text for word in words))
    return str(found)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents that are printed as they are, and programs in front of all others."""
    for name in DOCUMENTS:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Notes of {name}.\n")
    write_program(
        "specx",
        tmp_path,
        f'exec {sys.executable} -c "from specx.cli.main import main; main()" "$@"',
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    packages = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(packages))
    return tmp_path


def write_program(name: str, folder: Path, script: str) -> None:
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def sh(script: str, **variables: str) -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def summaries() -> set[str]:
    return {str(path.relative_to("sums")) for path in Path("sums").rglob("[!.]*.md")}


ALL = {f"{name}.md" for name in DOCUMENTS}
FLAT = {f"{Path(name).name}.md" for name in DOCUMENTS}


def test_no_recipe_is_without_a_test() -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh"] * 6 + ["make", "sh", "cron"]


@pytest.mark.parametrize(
    ("line", "made"),
    [
        (0, ALL),
        pytest.param(1, ALL, marks=pytest.mark.slow),
        pytest.param(2, FLAT, marks=pytest.mark.slow),
        (3, {"a.txt.md"}),
    ],
)
def test_ways_to_name_documents(line: int, made: set[str]) -> None:
    Path("names.txt").write_text("docs/a.txt\n")
    sh(recipe("--from-file names.txt").splitlines()[line])
    assert summaries() == made


def test_json_lines_in_and_out() -> None:
    Path("rows.jsonl").write_text('{"body": "One."}\n{"body": "Two."}\n')
    sh(recipe("rows.jsonl"))
    lines = Path("summaries.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"index": 1' in lines[1]


def test_workers() -> None:
    sh(recipe("--workers 2"))
    assert summaries() == ALL


@pytest.mark.slow
def test_a_ray_cluster() -> None:
    pytest.importorskip("ray")
    years = (f"In {year} the harbour counted {year * 7} ships." for year in range(1900, 1940))
    Path("docs/a.txt").write_text("\n\n".join(years))  # long enough for a model
    sh(recipe("ray start --head"))
    assert summaries() == ALL
    assert Path("sums/docs/a.txt.md").read_text().count("[l. ") == 8


def test_xargs() -> None:
    sh(recipe("xargs"))
    assert summaries() == FLAT


def test_parallel() -> None:
    if shutil.which("parallel") is None:
        pytest.skip("GNU parallel is not installed")
    sh(recipe("parallel"))
    assert summaries() == ALL


@pytest.mark.slow
def test_make_makes_what_is_older() -> None:
    Path("docs/b c.txt").unlink()  # make knows no names with spaces
    Path("Makefile").write_text(recipe("wildcard"))
    sh("make -j2")
    assert summaries() == {"a.txt.md", "d.txt.md"}
    when = Path("sums/d.txt.md").stat().st_mtime_ns
    os.utime("docs/a.txt", ns=(2**62, 2**62))
    assert "docs/a.txt" in (again := sh("make"))
    assert "docs/d.txt" not in again
    assert Path("sums/d.txt.md").stat().st_mtime_ns == when


@pytest.mark.slow
def test_a_slurm_array_with_a_stand_in_for_srun(folder: Path) -> None:
    write_program("srun", folder, 'exec "$@"')
    for task in "1234":
        sh(recipe("srun"), SLURM_ARRAY_TASK_ID=task)
    assert summaries() == ALL
    hidden = {path.name for path in Path("sums").glob(".specx*")}
    assert hidden == {".specx-log.jsonl", *(f".specx-lock-{task}-of-4" for task in "1234")}


def test_cron(folder: Path) -> None:
    job = recipe("15 2 * * *").removeprefix("15 2 * * * ").replace("/srv/reports", str(folder))
    Path("known.txt").write_text("docs/empty.txt\n")
    sh(job)
    assert summaries() == ALL
    before = {name: (Path("sums") / name).stat().st_mtime_ns for name in ALL}
    Path("docs/new.txt").write_text("New.\n")
    sh(job)
    assert summaries() == {*ALL, "docs/new.txt.md"}
    assert {name: (Path("sums") / name).stat().st_mtime_ns for name in ALL} == before
    assert Path("sums.log").read_text() == ""
    Path("docs/empty.txt").write_text("")
    sh(job)
    assert Path("sums.log").read_text().startswith("specx: docs/empty.txt is empty")
