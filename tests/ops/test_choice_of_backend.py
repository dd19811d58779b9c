"""One place chooses the backend, and nothing else knows which there are."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from specx.ops import contract
from specx.ops.contract import HAS_TRITON, built_in_ops
from specx.ops.torch.backend import TorchOps

PACKAGE = Path(contract.__file__).parents[1]
KERNELS = PACKAGE / "ops"
FILES = {str(file.relative_to(PACKAGE)): file for file in sorted(PACKAGE.rglob("*.py"))}
# Files outside ops/ may import these of one backend alone: the report of what is installed.
REPORTED = {"cli/doctor.py": {"specx.ops.hopper.compiler", "specx.ops.hopper.driver"}}


@cache
def nodes(file: Path) -> list[ast.AST]:
    """Return the syntax of a file that names what is looked for here."""
    text = file.read_text(encoding="utf-8")
    if not re.search(r"ops_for|built_in_ops|specx\.ops\.(triton|hopper)|specx\.ops import", text):
        return []
    return list(ast.walk(ast.parse(text)))


def imported(file: Path) -> Iterator[str]:
    """Every module that a file may mean by an import, anywhere in it."""
    for node in nodes(file):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def calls_of(file: Path, name: str) -> int:
    functions = [node.func for node in nodes(file) if isinstance(node, ast.Call)]
    return sum(name in (getattr(f, "id", None), getattr(f, "attr", None)) for f in functions)


def test_the_backend_is_chosen_when_a_model_is_loaded() -> None:
    names = ("ops_for", "built_in_ops")
    callers = {name: [calls_of(file, each) for each in names] for name, file in FILES.items()}
    assert {name: counts for name, counts in callers.items() if any(counts)} == {
        "models/model_files.py": [1, 0],
        "ops/contract.py": [0, 1],
        "cli/doctor.py": [0, 1],  # it says which one it would be
    }


def test_backends_of_gpus_are_known_to_kernels_alone() -> None:
    found = {
        (name, module)
        for name, file in FILES.items()
        if KERNELS not in file.parents
        for module in imported(file)
        if module.startswith(("specx.ops.triton", "specx.ops.hopper"))
        and not module.startswith(tuple(REPORTED.get(name, ())))
    }
    assert not found


def test_torch_serves_the_cpu() -> None:
    assert isinstance(built_in_ops(torch.device("cpu")), TorchOps)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_triton_serves_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert built_in_ops(torch.device("cuda")).name == "triton"
    monkeypatch.setattr(contract, "HAS_TRITON", False)
    assert built_in_ops(torch.device("cuda")).name == "torch"
