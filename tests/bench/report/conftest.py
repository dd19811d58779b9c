from pathlib import Path

import pytest

from specx.bench.report.files import write_bench
from tests.bench.report.examples import make_bench


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of ``make_bench``, drawn once."""
    folder = tmp_path_factory.mktemp("bench") / "new" / "folder"
    write_bench(make_bench(), folder)
    return folder
