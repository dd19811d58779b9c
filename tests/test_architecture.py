"""The direction of the data: which room may import which (``docs/architecture.md``)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "specx"

LEAVES = {"errors", "records", "profile", "cache_folder"}
PRODUCT = LEAVES | {"documents", "prompts", "kernels", "models", "engine", "jobs", "reports"}
ROOMS = {
    "errors": set(),
    "records": set(),
    "cache_folder": set(),
    "profile": {"errors"},
    "documents": LEAVES,
    "prompts": LEAVES | {"documents"},
    "kernels": LEAVES,
    "models": LEAVES | {"kernels"},
    "engine": LEAVES | {"kernels", "models"},
    "reports": {"errors", "records"},
    "jobs": PRODUCT,
    "bench": PRODUCT,
    "training": PRODUCT,
    "cli": PRODUCT | {"bench"},
    "__main__": {"cli"},
}


def room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(file: Path) -> Iterator[str]:
    """Rooms that a file imports anywhere in it; the package itself holds only the version."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports here are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts = [name.split(".") for name in names if name.startswith("specx.")]
        yield from (part[1] for part in parts if part[1] != "__version__")


FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if room(file) != "__init__"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_arrow_points_back(file: Path) -> None:
    assert set(imported_rooms(file)) <= ROOMS[room(file)] | {room(file)}


def test_reading_and_reporting_do_without_torch() -> None:
    light = [file for file in FILES if room(file) in {"documents", "reports", "profile"}]
    names = [
        ".".join(("specx", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in light
    ]
    code = f"import sys, {', '.join(names)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
