"""Launches that Triton need not prepare again, by a kernel that only takes notes."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl
from triton import knobs
from triton.runtime import cache
from triton.runtime.jit import JITFunction

from specx.ops.triton.kernel import TritonKernel, kernel, prepare


def _copied(
    x_ptr: tl.tensor, out_ptr: tl.tensor, rows: tl.tensor, scale: tl.tensor, BLOCK: tl.constexpr,
    ADD: tl.constexpr = False,
) -> None:  # fmt: skip
    """Nobody runs it."""


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def run(self, *given: Any) -> None:
        self.launches.append(given)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    made: list[Compiled] = []

    def run(*_: Any, **__: Any) -> Compiled:
        made.append(Compiled())
        return made[-1]

    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: "stream", raising=False)
    return made


def test_the_same_kind_of_launch_is_prepared_once(compilations: list[Compiled]) -> None:
    launched, (x, out) = TritonKernel(_copied), torch.zeros(2, 64)
    for rows in (3, 5):
        assert launched[rows, 2](x, out, rows, 0.5, BLOCK=64, num_warps=2) is compilations[0]
    ((compiled,), (launch,)) = compilations, compilations[0].launches
    assert compiled is compilations[0]
    assert launch[:6] == (5, 2, 1, "stream", "function", "metadata")
    assert launch[6:9] == (None, None, None)
    assert launch[9:] == (x.data_ptr(), out.data_ptr(), 5, 0.5, 64, False)


def test_what_triton_specializes_for_is_another_kernel(compilations: list[Compiled]) -> None:
    launched, x = TritonKernel(_copied), torch.zeros(65)

    def launch(x: Any, rows: Any = 3, scale: Any = 0.5, **constants: Any) -> None:
        launched[1,](x, None, rows, scale, **{"BLOCK": 64, **constants})

    kinds: list[dict[str, Any]] = [
        {"x": x},
        {"x": x[1:]},  # not aligned
        {"x": x.half()},
        {"x": x, "rows": 1},
        {"x": x, "rows": 16},
        {"x": x, "rows": 1 << 40},
        {"x": x, "rows": (1 << 63) + 1},
        {"x": x, "scale": None},
        {"x": x, "scale": True},
        {"x": x, "BLOCK": 32},
        {"x": x, "ADD": True},
        {"x": x, "num_warps": 2},
    ]
    for _ in range(2):
        for each in kinds:
            launch(**each)
    assert len(compilations) == len(kinds)
    assert all(len(each.launches) == 1 for each in compilations)


def test_a_profiler_sees_every_launch(
    compilations: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, x = TritonKernel(_copied), torch.zeros(64)
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    for _ in range(2):
        launched[1,](x, None, 3, 0.5, BLOCK=64)
    assert len(compilations) == 2


def test_arguments_by_name_are_left_to_triton(compilations: list[Compiled]) -> None:
    launched, x = TritonKernel(_copied), torch.zeros(64)
    for _ in range(2):
        launched[1,](x, None, 3, scale=0.5, BLOCK=64)
    assert len(compilations) == 2


@pytest.mark.parametrize("interpreted", [False, True])
def test_in_the_interpreter_kernels_are_tritons(
    interpreted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", interpreted)
    assert isinstance(kernel(_copied), TritonKernel) is not interpreted
    assert isinstance(kernel(do_not_specialize=["rows"])(_copied), TritonKernel) is not interpreted


def test_what_a_first_launch_waits_for_is_prepared_in_a_thread() -> None:
    cache.triton_key.cache_clear()
    thread = prepare(torch.device("cpu"))
    thread.join(60)
    assert cache.triton_key.cache_info().currsize == 1
    assert prepare(torch.device("cpu")) is thread
