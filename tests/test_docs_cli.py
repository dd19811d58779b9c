"""``docs/cli.md`` is what ``--help`` says, and names every exit code."""

import re
import runpy
from importlib import metadata
from pathlib import Path

import pytest

from specx import errors
from specx.cli.interruption import SIGNALS

ROOT = Path(__file__).parents[1]
GENERATOR = ROOT / "docs" / "generate_cli.py"
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def reference_typer() -> str:
    """The version whose layout of help texts the page has."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(pin.partition("==")[2] for pin in pins if pin.startswith("typer=="))


@pytest.mark.skipif(
    metadata.version("typer") != reference_typer(),
    reason="other versions of typer lay help texts out differently",
)
def test_the_page_is_current() -> None:
    page = runpy.run_path(str(GENERATOR))["page"]
    assert page(PAGE) == PAGE, f"run: python {GENERATOR.relative_to(ROOT)}"


def test_every_exit_code_is_explained() -> None:
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    signals = {128 + number for number in SIGNALS}
    assert explained == {0} | signals | {kind.exit_code for kind in classes}
