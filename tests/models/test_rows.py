"""A row's numbers are its own on a CPU, to the bit, as on a GPU (``tests/gpu``)."""

from pathlib import Path

import pytest
import torch

from specx.ops.contract import HAS_TRITON, built_in_ops
from tests.models.families import CELLS, FEATURES, WITH_STATES, Cell, Text, ancestors_of, make_pair
from tests.models.rows import CAPACITY, check_rows, copy_of, logits_alone
from tests.threads import threads

CPU = torch.device("cpu")
# Blocks of keys end at 512: texts that end before it, and that a tree goes beyond.
PREFIXES = (60, 500, 511)


@pytest.mark.every(5)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_row_of_a_tree_is_what_it_is_alone(cell: Cell, tmp_path: Path) -> None:
    """Behind one of the prefixes, and on one thread or two."""
    decoder = make_pair(cell, tmp_path).decoder(CAPACITY, built_in_ops(CPU), CPU, torch.float32)
    if not decoder.row_invariant:
        pytest.skip("computed by torch, or with windows")
    seed = len(str(cell))
    with threads(1 + seed % 2):
        check_rows(decoder, seed, PREFIXES, only=seed % 3)


BRANCHED = [0, 0, 0]  # parents


@pytest.mark.slow
@pytest.mark.skipif(
    not HAS_TRITON or torch.cuda.is_available(), reason="needs Triton's interpreter"
)
@pytest.mark.parametrize(
    ("cell", "dtype"),
    [
        pytest.param(
            cell, dtype, id=f"{cell}, {dtype}",
            marks=() if cell.feature == "a delta rule" and dtype.itemsize < 4 else pytest.mark.slow,
        )
        for cell in CELLS
        if cell.feature in FEATURES & WITH_STATES
        for dtype in (torch.float32, torch.bfloat16)
    ],
)  # fmt: skip
def test_a_row_behind_a_state_is_what_it_is_alone(
    cell: Cell, dtype: torch.dtype, tmp_path: Path
) -> None:
    """By Triton's kernels: however much of a row's path is text already."""
    from specx.ops.triton.backend import TritonOps

    decoder = make_pair(cell, tmp_path).decoder(64, TritonOps(), CPU, dtype)
    assert decoder.row_invariant
    drawn = torch.randint(3, 131, (16,), generator=torch.Generator().manual_seed(5))
    text = Text(decoder, 64, ahead=16)
    text.read(drawn[:7], 1)
    tokens = drawn[7 : 7 + len(BRANCHED)]
    logits = copy_of(text).verify(tokens, BRANCHED)
    path = ancestors_of(tuple(BRANCHED))[-1]
    assert torch.equal(logits[-1], logits_alone(text, tokens, path)[0])
