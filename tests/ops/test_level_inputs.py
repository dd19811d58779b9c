"""The inputs of the nodes of each level, by both backends, over a growing tree."""

import pytest
import torch

from specx.ops.ancestors import single_sets, unpack_sets, words_for
from specx.ops.contract import HAS_TRITON, built_in_ops
from specx.ops.torch.backend import TorchOps

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize("width", [1, 2, 33, 63])
@pytest.mark.parametrize("text", [1, 40])
def test_kernel_and_torch_agree_level_by_level(width, text):
    backends, depth = (TorchOps(), built_in_ops(torch.device("cuda"))), 6
    length = torch.tensor([text], device=DEVICE)
    words = words_for((depth - 1) * width)
    generator = torch.Generator().manual_seed(width)
    above: torch.Tensor | None = None
    seen = torch.zeros(width, 0, dtype=torch.bool)
    for number in range(1, depth):
        parents = torch.randint(0, width, (width,), generator=generator)
        own, after = single_sets((number - 1) * width, width, words, DEVICE), (number - 1) * width
        plain, found = (
            ops.level_inputs(
                parents.to(DEVICE), above, own,
                length=length, after=after, position=length, ahead=number - 1,
            )
            for ops in backends
        )  # fmt: skip
        assert all(map(torch.equal, plain, found))
        above, positions, slots = found

        earlier = seen[parents] if number > 1 else seen
        seen = torch.cat([earlier, torch.eye(width, dtype=torch.bool)], 1)
        assert torch.equal(unpack_sets(above, number * width).cpu(), seen)
        assert not unpack_sets(above, 64 * words)[:, number * width :].any()
        assert positions.tolist() == [text + number - 1] * width
        assert slots.tolist() == list(range(text + after, text + after + width))
