"""The product of a large weight with up to 64 rows, which is nearly all reading: Hopper.

What a weight is multiplied with does not depend on how far it has been read, so blocks ask for it
before the kernel in front is done, and reading goes on across kernels. Neither cuBLAS nor Triton
can do that. The sum is rounded once, with bias and residual in it; a gate is applied where the
result is.
"""

from ctypes import c_int, c_uint64
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specx.cuda.compiler import compiled
from specx.cuda.driver import CudaError, Kernel, TensorMap, is_hopper, load

SOURCE = Path(__file__).with_suffix(".cu")
MOST_ROWS = 64
WIDTH = 64  # inputs of a slice
LARGE = 32_000  # rows: those of an lm head


@dataclass(frozen=True)
class Launch:
    """How a product is spread over the device.

    ``rows``: of the weight in a block, 64 or 128. ``stages``: pieces that a block reads ahead, of
    ``slices`` times 64 inputs. ``split``: blocks that share the sum of the same rows, up to 8.
    ``blocks``: on a multiprocessor at a time.
    """

    rows: int
    stages: int
    slices: int
    split: int
    blocks: int

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block: its pieces, and what may be lost to alignment."""
        pieces = self.stages * self.slices * (self.rows + MOST_ROWS) * WIDTH * 2
        return pieces + 1024

    @property
    def threads(self) -> int:
        return 128 * (self.rows // 64) + 32


def plan(rows: int, multiprocessors: int) -> Launch:
    """The launch for a weight of ``rows`` rows: all blocks at a time, if possible.

    Which of them is fastest was measured on an H200, with the weights of 8B and 7B models.
    """
    tiles = -(-rows // 64)
    if 2 * tiles <= multiprocessors:
        split = 4 if 4 * tiles <= multiprocessors else 2
        return Launch(64, stages=6, slices=2, split=split, blocks=1)
    if tiles <= multiprocessors:
        return Launch(64, stages=6, slices=2, split=1, blocks=1)
    if tiles <= 3 * multiprocessors:
        split = 2 if 2 * tiles <= 3 * multiprocessors else 1
        return Launch(64, stages=4, slices=1, split=split, blocks=3)
    return Launch(128, stages=2, slices=2, split=1, blocks=2)


class CudaProduct:
    """x -> x · weightᵀ + bias, for one weight that stays where it is."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        gated: bool = False,
        launch: Launch | None = None,
    ) -> None:
        """weight [N, K], or [2 N, K] where ``gated``; bias likewise; see ``suits``."""
        rows = len(weight)
        if launch is None:
            sms = torch.cuda.get_device_properties(weight.device).multi_processor_count
            launch = plan(rows, sms)
        self.weight, self.bias, self.launch = weight, bias, launch
        self.columns = rows // 2 if gated else rows
        self._outputs = launch.rows // 2 if gated else launch.rows  # of a block
        self._kernel = _kernel(launch, gated, weight.dtype, weight.device)
        self._map = TensorMap(weight, self._outputs)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x [T, K] with T <= 64, residual [T, N], contiguous -> [T, N].

        Where the product is gated: SiLU of its first half times the second.
        """
        rows, inputs = x.shape
        assert rows <= MOST_ROWS
        assert inputs == self.weight.shape[1]
        assert x.dtype == self.weight.dtype
        assert x.is_contiguous()
        out = x.new_empty((rows, self.columns))
        assert residual is None or (residual.shape == out.shape and residual.is_contiguous())
        tiles, split = -(-self.columns // self._outputs), self.launch.split
        arguments = [
            self._map,
            TensorMap(x, MOST_ROWS),
            c_uint64(out.data_ptr()),
            c_uint64(0 if self.bias is None else self.bias.data_ptr()),
            c_uint64(0 if residual is None else residual.data_ptr()),
            c_int(rows),
            c_int(self.columns),
            c_int(-(-inputs // (WIDTH * self.launch.slices))),
        ]
        with torch.cuda.device(x.device):
            grid = tiles * split, 1, 1
            self._kernel.launch(grid, self.launch.threads, arguments, cluster=split)
        return out


def product_of(weight: Tensor, bias: Tensor | None, *, gated: bool = False) -> CudaProduct | None:
    """The product of a weight that is for this; None where it is not, or no kernel can be had:
    cuBLAS does it, too."""
    if not suits(weight):
        return None
    try:
        return CudaProduct(weight, bias, gated=gated)
    except CudaError:
        return None


def suits(weight: Tensor) -> bool:
    """Whether a weight can be multiplied here: on a Hopper GPU where the kernel compiles."""
    return (
        weight.is_cuda
        and weight.dtype in (torch.float16, torch.bfloat16)
        and weight.is_contiguous()
        and weight.shape[0] % 16 == weight.shape[1] % 8 == weight.data_ptr() % 16 == 0
        and _compiles(weight.device)
    )


@cache
def _compiles(device: torch.device) -> bool:
    if not is_hopper(device):
        return False
    try:
        _kernel(plan(LARGE, 132), False, torch.bfloat16, device)  # which most models need
    except CudaError:
        return False
    return True


@cache
def _kernel(launch: Launch, gated: bool, dtype: torch.dtype, device: torch.device) -> Kernel:
    constants = {name.upper(): value for name, value in asdict(launch).items()}
    binary = compiled(SOURCE, constants | {"GATED": gated, "HALF": dtype == torch.float16})
    with torch.cuda.device(device):
        return load(binary, "product", launch.shared)
