"""The product of a large weight with up to 64 rows, which is nearly all reading: Hopper.

What a weight is multiplied with does not depend on how far it has been read, so blocks ask for it
before the kernel in front is done, and reading goes on across kernels; and multiprocessors that are
nearer to the memory do more. Neither cuBLAS nor Triton does that. The sum is rounded once, with
bias and residual in it; a gate is applied where the result is.
"""

import ctypes
from ctypes import c_int, c_uint64
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from specx.cuda.compiler import compiled
from specx.cuda.driver import HOPPER, CudaError, Kernel, TensorMap, load

SOURCE = Path(__file__).with_suffix(".cu")
MOST_ROWS = 64
TILE = 64  # rows of the weight
THREADS = 160
STAGES = 6
PIECE = 128  # inputs that a block takes at once
PIECE_BYTES = PIECE * (TILE + MOST_ROWS) * 2
SUMS_BYTES = MOST_ROWS * (TILE + 4) * 4
SHARED = STAGES * PIECE_BYTES + SUMS_BYTES + 1024  # which alignment may take
# The slowest multiprocessor of an H200 reads at .88 of the mean: it can do so much of a fair share.
FIXED_SHARE = 0.9


@dataclass(frozen=True)
class Launch:
    """How the tiles of a weight are spread over the device: see ``cuda_product.cu``.

    ``split``: blocks that share a tile, or the parts that are claimed of it, 1 to 8, a power of 2.
    ``rounds``: tiles of each block before parts are claimed.
    """

    kernel: Literal["shared_sums", "stream"]
    split: int
    rounds: int = 0


def plan(tiles: int, multiprocessors: int) -> Launch:
    """The launch for a weight: every multiprocessor reads, or as many as tiles can be split for."""
    if tiles > multiprocessors:
        rounds = int(FIXED_SHARE * tiles / multiprocessors)
        return Launch("stream", split=4, rounds=max(1, rounds))
    split = 1
    while split < 8 and 2 * split * tiles <= multiprocessors:
        split *= 2
    return Launch("shared_sums", split)


class Workspace:
    """What the products of a model, one after the other, need on the side."""

    def __init__(self) -> None:
        self._parts = self._tiles = 0

    def reserve(self, tiles: int, split: int) -> None:
        """For ``tiles`` tiles that are claimed in parts; not after the first product."""
        assert "parts" not in vars(self)
        self._parts, self._tiles = max(self._parts, tiles * split), max(self._tiles, tiles)

    @cached_property
    def parts(self) -> Tensor:
        """Sums of parts of tiles."""
        return torch.empty(self._parts * MOST_ROWS * TILE, dtype=torch.float32, device="cuda")

    @cached_property
    def counters(self) -> Tensor:
        """How many parts were claimed, how many blocks are done, how many parts of each tile."""
        return torch.zeros(2 + self._tiles, dtype=torch.int32, device="cuda")


class _Result(ctypes.Structure):
    _fields_ = (
        ("out", c_uint64),
        ("bias", c_uint64),
        ("residual", c_uint64),
        ("nodes", c_int),
        ("columns", c_int),
    )


class CudaProduct:
    """x -> x · weightᵀ + bias, for one weight that stays where it is."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        workspace: Workspace,
        *,
        gated: bool = False,
        launch: Launch | None = None,
    ) -> None:
        """weight [N, K], or [2 N, K] where ``gated``; bias likewise; see ``suits``."""
        properties = torch.cuda.get_device_properties(weight.device)
        self._multiprocessors = properties.multi_processor_count
        self.weight, self.bias, self.workspace = weight, bias, workspace
        outputs = TILE // 2 if gated else TILE
        self.columns = len(weight) // 2 if gated else len(weight)
        self._tiles = -(-self.columns // outputs)
        self.launch = launch or plan(self._tiles, self._multiprocessors)
        if self.launch.kernel == "stream":
            claimed = self._tiles - self.launch.rounds * self._multiprocessors
            workspace.reserve(max(claimed, 0), self.launch.split)
        self._kernel = _kernel(
            self.launch.kernel, self.launch.split, gated, weight.dtype, weight.device
        )
        self._map = TensorMap(weight, outputs)

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
        pieces = -(-inputs // PIECE)
        arguments: list[Any] = [
            self._map,
            TensorMap(x, MOST_ROWS),
            _Result(out.data_ptr(), _address(self.bias), _address(residual), rows, self.columns),
            c_int(pieces),
        ]
        split = self.launch.split
        blocks, cluster = self._tiles * split, split
        with torch.cuda.device(x.device):
            if self.launch.kernel == "stream":
                blocks, cluster = self._multiprocessors, 1
                arguments += map(c_int, (self._tiles, self.launch.rounds))
                workspace = self.workspace.parts, self.workspace.counters
                arguments += (c_uint64(each.data_ptr()) for each in workspace)
            self._kernel.launch((blocks, 1, 1), THREADS, arguments, cluster)
        return out


def suits(weight: Tensor) -> bool:
    """Whether a weight can be multiplied here: on a Hopper GPU where the kernel compiles."""
    return (
        weight.is_cuda
        and weight.dtype in (torch.float16, torch.bfloat16)
        and weight.is_contiguous()
        and weight.shape[0] % 16 == weight.shape[1] % 8 == weight.data_ptr() % 16 == 0
        and _compiles(weight.device)
    )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@cache
def _compiles(device: torch.device) -> bool:
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) != HOPPER:
        return False
    try:
        _kernel("stream", 4, False, torch.bfloat16, device)
    except CudaError:
        return False  # cuBLAS does it, too
    return True


@cache
def _kernel(name: str, split: int, gated: bool, dtype: torch.dtype, device: torch.device) -> Kernel:
    constants = {
        "STAGES": STAGES,
        "SLICES": PIECE // 64,
        "SPLIT": split,
        "GATED": gated,
        "HALF": dtype == torch.float16,
    }
    with torch.cuda.device(device):
        return load(compiled(SOURCE, constants), name, SHARED)
