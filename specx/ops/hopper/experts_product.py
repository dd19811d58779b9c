"""The products of up to 64 rows with the experts that they have chosen, for Hopper.

Weights are bfloat16 or MXFP4. A row's result does not depend on the other rows: the weight alone
determines the order of a sum. Other weights and GPUs use the kernels of ``triton/experts.py``.
"""

from ctypes import c_float, c_int, c_uint64
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from specx.ops.hopper.compiler import kernel_of
from specx.ops.hopper.driver import CudaError, Kernel
from specx.ops.hopper.packed_product import TILES
from specx.ops.hopper.product import ACTIVATIONS, GATED, MOST_ROWS, PLAIN, SOURCE
from specx.ops.layers import LinearMap
from specx.ops.spec import MlpSpec
from specx.ops.triton.packed import TritonWeight
from specx.ops.triton.packed_layout import LAYOUTS

EXPERTS_SOURCE = SOURCE.with_name("experts_product.cu")
MOST_EXPONENT = 128  # of a part: weights are exact in bfloat16 up to there
CHUNK = 16  # bytes that a thread reads of a row at a time


@dataclass(frozen=True)
class ExpertsLaunch:
    """The division of a product: ``share`` of a block's ``warps`` have the same rows of a weight.

    ``ahead``: chunks that a thread has asked for; ``resident``: blocks of a multiprocessor.
    """

    warps: int
    share: int
    ahead: int
    resident: int


def plan(chunks: int, *, packed: bool, tiles: int) -> ExpertsLaunch:
    """Plan the launch for rows of ``chunks`` chunks; the share does not depend on ``tiles``."""
    share = 4 if chunks >= 64 else 2
    return ExpertsLaunch(4, share, 3 if packed else 4, 5 if tiles <= 2 else 3)


class ExpertsProduct:
    """The products with E experts, and the map of the shared expert E if given.

    With ``mlp``, x [T, K] has the rows, the maps are [E, 2 N, K], and its gate is applied. Without,
    x [T · n, K] has the pairs of a row and an expert, and the maps are [E, N, K].
    """

    def __init__(
        self,
        maps: LinearMap,
        experts: int,
        mlp: MlpSpec | None = None,
        shared: Tensor | None = None,
    ) -> None:
        """Raises CudaError if the kernel is unavailable."""
        self._experts, self._shared, self.bias = experts, shared, maps.bias
        packed = isinstance(maps.weight, TritonWeight)
        self._first, sides = 0, 1 if mlp is None else 2
        if isinstance(maps.weight, TritonWeight):
            ((rows, form),), self._inputs = maps.weight.parts, maps.weight.columns
            self._first = LAYOUTS[form.name].first_bytes(self._inputs)
            is_served = form.name == "MXFP4" and maps.weight.dtype == torch.bfloat16
            is_served = is_served and int(rows[:, self._first :].max()) <= MOST_EXPONENT
            self._chunks = self._inputs // 2 // CHUNK
        else:
            rows, self._inputs = maps.tensor.flatten(0, 1), maps.tensor.shape[2]
            is_served = rows.dtype == torch.bfloat16
            self._chunks = self._inputs * 2 // CHUNK
        self._weight, self._columns = rows, len(rows) // experts // sides
        activation = "silu" if mlp is None else mlp.activation
        clamp = None if mlp is None else mlp.clamp
        self._clamp = clamp or (1.0, 0.0)
        is_served = (
            is_served
            and rows.is_cuda
            and all(each is None or each.is_contiguous() for each in (rows, shared, maps.bias))
            and (maps.bias is None or maps.bias.dtype == torch.bfloat16)
            and activation in ACTIVATIONS
            and self._columns % (16 // sides) == 0
            and self._inputs % (64 if packed else 32) == 0
        )
        if not is_served:
            raise CudaError(f"no kernel of {EXPERTS_SOURCE.name} for {experts} experts")
        constants = {
            "KIND": PLAIN if mlp is None else GATED, "PACKED": packed, "HALF": 0,
            "ACTIVATION": ACTIVATIONS.index(activation), "CLAMPED": clamp is not None,
        }  # fmt: skip
        self._kernels: list[tuple[int, int, int, Kernel]] = []
        for tiles in TILES:
            launch = plan(self._chunks, packed=packed, tiles=tiles)
            told = {name.upper(): n for name, n in asdict(launch).items()}
            kernel = kernel_of(
                EXPERTS_SOURCE, "product", 0, rows.device, **constants, **told, TILES=tiles
            )
            if kernel is None:
                raise CudaError(f"no kernel of {EXPERTS_SOURCE.name} for {rows.device}")
            outputs = launch.warps // launch.share * 16 // sides
            blocks = -(-self._columns // outputs)
            self._kernels.append((8 * tiles, blocks, 32 * launch.warps, kernel))

    def __call__(self, chosen: Tensor, x: Tensor) -> Tensor:
        """Multiply the pairs; chosen int64 [T, n], ascending in each row -> [T · n, N]."""
        rows, each = chosen.shape
        assert rows <= MOST_ROWS
        assert x.is_contiguous()
        assert chosen.is_contiguous()
        assert x.dtype == torch.bfloat16
        blocks, threads, kernel = next(each[1:] for each in self._kernels if rows <= each[0])
        pairs, most = rows * each, self._experts + (self._shared is not None)
        out = x.new_empty((pairs, self._columns))
        given = self._weight, self._shared, x, chosen, self.bias, out
        pointers = [c_uint64(0 if each is None else each.data_ptr()) for each in given]
        numbers = (
            rows, each, self._columns, self._inputs, self._weight.stride(0) * self._weight.itemsize,
            self._first, self._experts, pairs > most,
        )  # fmt: skip
        with torch.cuda.device(x.get_device()):
            kernel.launch(
                (blocks, min(pairs, most), 1),
                threads,
                [*pointers, *map(c_int, numbers), *map(c_float, self._clamp)],
            )
        return out


def product_of(
    maps: LinearMap, experts: int, mlp: MlpSpec | None = None, shared: Tensor | None = None
) -> ExpertsProduct | None:
    """Return the products with experts; None if the kernel does not support them."""
    try:
        return ExpertsProduct(maps, experts, mlp, shared)
    except CudaError:
        return None
