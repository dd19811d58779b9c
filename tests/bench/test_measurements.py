"""What was measured for the documentation is concluded as what is measured now."""

import json
from pathlib import Path

import pytest

from specx.bench.experiments import EXPERIMENTS
from specx.bench.report.files import load_bench
from specx.bench.session import concluded_again

FOLDER = Path(__file__).parents[2] / "docs" / "measurements" / "bench"


def can_be_concluded(file: Path) -> bool:
    """Runs have their outputs, and the experiment is still there."""
    sections = json.loads(file.read_text(encoding="utf-8"))["sections"]
    return all(
        section["name"] in EXPERIMENTS and all("output" in run for run in section["runs"])
        for section in sections
    )


FILES = [file for file in sorted(FOLDER.glob("*.json")) if can_be_concluded(file)]


def test_most_of_them() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_tables(file: Path) -> None:
    report = load_bench(file)
    again = concluded_again(report)
    for before, after in zip(report.sections, again.sections, strict=True):
        raw = json.loads(json.dumps(after.runs))
        for old, new in zip(before.runs, raw, strict=True):
            assert old.keys() - new.keys() <= {"facts"}  # of earlier versions
            assert {key: old[key] for key in old.keys() & new.keys()}.items() <= new.items()
        assert after.findings.tables[0].rows or before.name == "divergence"
        assert all(table.rows for table in after.findings.tables[1:])
