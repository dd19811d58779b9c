"""A kernel on a device, or None: compiled, loaded and refused once."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.ops.hopper import compiler
from specx.ops.hopper.compiler import kernel_of
from specx.ops.hopper.driver import CudaError, Kernel

DEVICE = torch.device("cuda", 0)
SOURCE = Path("kernel.cu")


@pytest.fixture(autouse=True)
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, int]]]:
    """What was compiled, on what is taken for a Hopper GPU."""
    seen: list[dict[str, int]] = []

    def compiled(source: Path, constants: dict[str, int]) -> bytes:
        seen.append(constants)
        return source.name.encode()

    def load(binary: bytes, name: str, shared: int) -> Any:
        return Kernel((binary, name), shared)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "compiled", compiled)
    monkeypatch.setattr(compiler, "load", load)
    monkeypatch.setattr(compiler, "is_hopper", lambda _: True)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    kernel_of.cache_clear()
    yield seen
    kernel_of.cache_clear()


def test_each_variant_is_made_once(compilations: list[dict[str, int]]) -> None:
    first = kernel_of(SOURCE, "attend", 100, DEVICE, HALF=True)
    assert first == Kernel((b"kernel.cu", "attend"), 100)  # type: ignore[arg-type]
    assert kernel_of(SOURCE, "attend", 100, DEVICE, HALF=True) is first
    assert kernel_of(SOURCE, "attend", 100, DEVICE, HALF=False) is not first
    assert compilations == [{"HALF": True}, {"HALF": False}]


def test_none_on_other_devices(
    compilations: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "is_hopper", lambda _: False)
    assert kernel_of(SOURCE, "attend", 100, DEVICE, HALF=True) is None
    assert compilations == []


@pytest.mark.parametrize("step", ["compiled", "load"])
def test_a_refusal_is_not_asked_for_again(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*arguments: Any) -> None:
        asked.append(arguments)
        raise CudaError("no")

    monkeypatch.setattr(compiler, step, refuse)
    for _ in range(2):  # of a model with many layers
        assert kernel_of(SOURCE, "attend", 100, DEVICE, HALF=True) is None
    assert len(asked) == 1
