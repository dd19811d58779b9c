"""Causal attention by Triton against float64: on a CUDA device, or in Triton's interpreter."""

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

from specx.ops.triton.backend import TritonOps
from specx.ops.triton.causal_attention import attend, plan
from specx.ops.triton.tree_attention import Launch
from tests.ops import reference
from tests.ops.examples import ERROR, error, in_ring, make_inputs

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = Launch(1, 16, 16, 4, 2)


@dataclass(frozen=True)
class Case:
    """``spare``: rows of a ring beyond those that it needs; None: storage of the whole text."""

    rows: int
    past: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    spare: int | None = None
    ratio: int = 2
    dim: int = 32


CASES = {
    "nothing before": Case(50, 0),
    "behind a text": Case(50, 37, ratio=3, dim=48),
    "one row": Case(1, 33, 20, 2.0, True, 0),
    "caps": Case(40, 30, softcap=2.0),
    "sinks": Case(40, 30, sinks=True),
    "a ring": Case(50, 200, 40, spare=0),
    "a short window": Case(50, 60, 3, spare=2),
    "itself alone": Case(33, 10, 1, spare=0),
    "more than the text": Case(40, 30, 500),
    "all": Case(70, 100, 33, 1.5, True, 4),
}


def check(case: Case, launch: Launch | None, dtype: torch.dtype = torch.float32) -> None:
    inputs = make_inputs(
        case.rows, case.past + case.rows, dtype=dtype, ratio=case.ratio, dim=case.dim, kv_heads=1
    )
    capacity = case.past + case.rows + 5
    if case.spare is not None:
        assert case.window is not None
        capacity = case.window + case.rows + case.spare
    keys, values = (in_ring(x, capacity, DEVICE) for x in (inputs.k, inputs.v))
    sinks = torch.linspace(-2, 3, case.ratio) if case.sinks else None
    out = attend(
        inputs.q.to(DEVICE), keys, values, case.past, inputs.scaling, case.window, case.softcap,
        None if sinks is None else sinks.to(DEVICE), launch=launch,
    )  # fmt: skip
    seen = reference.causal_mask(case.rows, case.past, case.window)
    expected, _ = reference.attention(
        inputs.q, inputs.k, inputs.v, seen, inputs.scaling, case.softcap, sinks
    )
    assert out.dtype == dtype
    assert error(out.cpu(), expected) < ERROR[dtype]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_windows_caps_and_sinks(case: Case) -> None:
    check(case, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("launch", [None, Launch(1, 32, 16, 4, 2), Launch(1, 16, 64, 4, 2)])
@pytest.mark.parametrize("window", [None, 1, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("rows", [1, 16, 17, 70])
def test_around_the_borders_of_blocks(rows: int, window: int | None, launch: Launch | None) -> None:
    for past in (0, 1, 15, 16, 31, 33, 100):
        check(Case(rows, past, window, spare=None if window is None else past % 3), launch)
    check(Case(rows, 50, window, 1.5, True), launch, torch.float16)


def test_the_backend_takes_it_for_what_flash_kernels_do_not_do() -> None:
    """Heads of more than 256 elements among it."""
    inputs = make_inputs(20, 50, dtype=torch.float16, ratio=1, dim=272, kv_heads=1)
    keys, values = (in_ring(x, 50, DEVICE) for x in (inputs.k, inputs.v))
    out = TritonOps().prefill_attention(inputs.q.to(DEVICE), keys, values, 30, None, inputs.scaling)
    seen = reference.causal_mask(20, 30)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert error(out.cpu(), expected) < ERROR[torch.float16]


@pytest.mark.parametrize("memory", [232448, 101376])
@pytest.mark.parametrize("dim", [16, 64, 80, 128, 256, 272, 512])
def test_a_plan_fits_into_shared_memory(dim: int, memory: int) -> None:
    launch = plan(dim, 2, memory)
    width = 1 << (dim - 1).bit_length()
    read = launch.block_rows + 2 * launch.stages * launch.block_columns
    assert 2 * width * read <= memory
