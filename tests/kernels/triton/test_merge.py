"""The kernel that merges two attentions, against plain torch: in the interpreter or on a device."""

import pytest
import torch

from specx.kernels import fused
from specx.kernels.torch.attend import merge

pytestmark = pytest.mark.skipif(not fused.IS_AVAILABLE, reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("dim", [64, 80])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_merge(rows, dim, dtype):
    from specx.kernels.triton import merge as triton_merge

    generator = torch.Generator().manual_seed(rows)
    outs = torch.randn(2, 1, rows, 3, dim, generator=generator).to(dtype).transpose(2, 3)
    lses = 40 * torch.randn(2, 1, 3, rows, generator=generator)
    parts = [part.to(DEVICE) for part in (outs[0], lses[0], outs[1].contiguous(), lses[1])]
    out, lse = triton_merge.merge(*parts, dtype)
    expected, expected_lse = merge(outs[0].double(), lses[0], outs[1].double(), lses[1])
    assert out.dtype == dtype
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(out.double().cpu(), expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(lse.cpu(), expected_lse)
