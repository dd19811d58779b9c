"""A row's numbers are its own on a CPU, to the bit, as on a GPU (``tests/gpu``)."""

from pathlib import Path

import pytest
import torch

from specx.ops.contract import built_in_ops
from tests.models.families import CELLS, Cell, make_pair
from tests.models.rows import CAPACITY, check_rows

CPU = torch.device("cpu")
# Blocks of keys end at 512: texts that end before it, and that a tree goes beyond.
PREFIXES = (60, 500, 511)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_row_of_a_tree_is_what_it_is_alone(cell: Cell, tmp_path: Path) -> None:
    decoder = make_pair(cell, tmp_path).decoder(CAPACITY, built_in_ops(CPU), CPU, torch.float32)
    if not decoder.row_invariant:
        pytest.skip("computed by torch, or with windows")
    before = torch.get_num_threads()
    torch.set_num_threads(1 + len(str(cell)) % 2)
    try:
        check_rows(decoder, len(str(cell)), PREFIXES)
    finally:
        torch.set_num_threads(before)
