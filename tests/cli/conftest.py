"""What the tests of several commands share."""

import pytest

from specx.cli.main import run
from tests.cli.processes import Ended, Run


@pytest.fixture
def specx(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``specx summarize`` in this process."""

    def do(*arguments: str) -> Ended:
        capsys.readouterr()
        code = run(["summarize", *arguments])
        return Ended(code, *capsys.readouterr())

    return do
