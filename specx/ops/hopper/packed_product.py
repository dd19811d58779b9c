"""The product of up to 64 rows with a weight packed in Q4_K or Q6_K, for Hopper.

The next operation of the decoder layer is fused into the product, as in ``product.py``. A row's
result does not depend on the other rows: the inputs and order of a sum depend only on the weight.
Other formats and other GPUs use the kernel of ``triton/packed.py``.
"""

from ctypes import c_int, c_uint64
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specx.ops.hopper.compiler import kernel_of
from specx.ops.hopper.driver import CudaError, Kernel
from specx.ops.hopper.product import (
    ACTIVATIONS,
    GATED,
    MOST_ROWS,
    ROTATED,
    SHARED,
    SOURCE,
    CudaProduct,
    GatedProduct,
    HeadsArgument,
    QkvProduct,
    WeightProduct,
)
from specx.ops.spec import Activation
from specx.ops.triton.packed import TritonWeight
from specx.ops.triton.packed_layout import BLOCK, LAYOUTS
from specx.ops.triton.tree_attention import limits_of

PACKED_SOURCE = SOURCE.with_name("packed_product.cu")
BITS = {"Q4_K": 4, "Q6_K": 6}  # of a code, by formats
TILES = (1, 2, 4, 8)  # of 8 rows of x, each with a kernel
MOST_STAGES = 4
FEW_ROWS, WIDE, HEAD_ROWS = 2112, 16384, 65536  # of a weight
MOST_KEPT = 2  # pieces of a warp whose sums of x are kept for all tiles


@dataclass(frozen=True)
class BlocksLaunch:
    """The division of a product among the device's blocks and warps.

    ``warps``: the warps of a block. ``share``: the number of warps that divide among them the
    inputs of ``groups`` · 16 rows of the weight. ``resident``: blocks at once on a multiprocessor.
    """

    warps: int
    share: int
    groups: int
    resident: int


def plan(tiles: int, rows: int, pieces: int) -> BlocksLaunch:
    """Plan the launch for a weight with ``rows`` rows, ``pieces`` pieces each, and tiles of x.

    The share affects a row's rounding, so it does not depend on the rows of x. The choices were
    measured on an H200, with the weights of 1.5B and 8B models.
    """
    if rows >= HEAD_ROWS:
        return BlocksLaunch(8, 2, 1, 2 if tiles <= 2 else 1)
    # One block on a multiprocessor where there are no more, with as many warps as are of use.
    most = 12 if rows <= FEW_ROWS else 8
    turns = -(-pieces // most)
    share = -(-pieces // turns)
    warps, groups, resident = share, 1, 2 if tiles <= 2 and most == 8 else 1
    if rows >= WIDE:
        if tiles == 1 and pieces > 8:
            warps, resident = 2 * share, 1
        elif tiles == 1:
            groups = 2
        elif tiles == 2:
            groups, resident = 2, 1
    return BlocksLaunch(warps, share, groups, resident)


class _BlocksWeight(WeightProduct):
    """The product with one weight."""

    def __init__(
        self,
        weight: TritonWeight,
        bias: Tensor | None = None,
        *,
        head_dim: int | None = None,
        activation: Activation = "silu",
    ) -> None:
        """Arguments as for ``WeightProduct``. Raises CudaError if the kernel is unavailable."""
        rows, inputs = weight.shape
        formats = [form.name for _, form in weight.parts]
        self._parts, self.bias, self.head_dim = weight.parts, bias, head_dim
        self.columns, self._boundary = rows // self.sides, len(weight.parts[0][0])
        self._pieces, self._outputs = inputs // BLOCK, 16 // self.sides
        # Neither a block's rows nor a head belong to both parts of a weight, nor to two heads.
        width, apart = self._outputs, 2 * self._outputs
        if self.kind == ROTATED:
            assert head_dim is not None
            width, apart = head_dim // 2, head_dim
        is_served = (
            weight.device.type != "cpu"
            and weight.dtype == torch.bfloat16
            and (bias is None or (bias.dtype == weight.dtype and bias.is_contiguous()))
            and inputs % BLOCK == 0
            and all(name in BITS for name in formats)
            and len(formats) <= (1 if self.kind == GATED else 2)
            and (len(formats) == 1 or self._boundary % apart == 0)
            and self.columns % self._outputs == width % self._outputs == 0
        )
        if not is_served:
            raise CudaError(f"no kernel of {PACKED_SOURCE.name} for {rows} rows in {formats}")
        constants: dict[str, int] = {"KIND": self.kind, "HALF": 0, "HEAD": head_dim or 2}
        constants |= {"FIRST": BITS[formats[0]], "SECOND": BITS[formats[-1]]}
        constants |= {"ACTIVATION": ACTIVATIONS.index(activation)}
        piece = max(LAYOUTS[name].row_bytes(16 * BLOCK) for name in formats)  # of 16 rows
        self._kernels: list[tuple[int, int, int, Kernel]] = []
        multiprocessors, _ = limits_of(weight.device)
        for tiles in TILES:
            launch = plan(tiles, rows, self._pieces)
            if len(formats) > 1 or self.columns // self._outputs % launch.groups:
                launch = replace(launch, groups=1)
            outputs = launch.warps // launch.share * launch.groups * self._outputs
            own = -(-self._pieces // launch.share)
            blocks, most = -(-self.columns // outputs), launch.resident * multiprocessors
            keeps = blocks >= 2 * most and own <= MOST_KEPT and formats == ["Q4_K"]
            # Sums of all warps of one or two tiles, of x over parts, and pieces, as many as fit.
            shared = (2 if tiles <= 2 else 1) * launch.warps * launch.groups * tiles * 512
            shared += keeps * launch.warps * own * tiles * 256
            room = (SHARED + 1024) // launch.resident - 1024 - shared
            stages = min(MOST_STAGES, room // (launch.warps * launch.groups * piece))
            assert stages > 0
            shared += launch.warps * launch.groups * stages * piece
            told = {**constants, **{name.upper(): n for name, n in asdict(launch).items()}}
            told |= {"TILES": tiles, "STAGES": stages, "KEEP": keeps}
            kernel = kernel_of(PACKED_SOURCE, "product", shared, weight.device, **told)
            if kernel is None:
                raise CudaError(f"no kernel of {PACKED_SOURCE.name} for {weight.device}")
            self._kernels.append((8 * tiles, min(blocks, most), 32 * launch.warps, kernel))

    def _run(self, x: Tensor, out: Tensor, residual: Tensor | None, heads: HeadsArgument) -> None:
        assert len(x) <= MOST_ROWS
        assert x.shape[1] == self._pieces * BLOCK
        assert x.dtype == torch.bfloat16
        assert x.is_contiguous()
        grid, threads, kernel = next(each[1:] for each in self._kernels if len(x) <= each[0])
        given = self._parts[0][0], self._parts[-1][0], x, out, self.bias, residual
        pointers = [c_uint64(0 if each is None else each.data_ptr()) for each in given]
        numbers = map(c_int, (len(x), self.columns, self._pieces, self._boundary))
        with torch.cuda.device(x.get_device()):
            kernel.launch((grid, 1, 1), threads, [*pointers, heads, *numbers])


class PlainBlocksProduct(_BlocksWeight, CudaProduct):
    """The product x · weightᵀ + bias, plus a residual."""


class GatedBlocksProduct(_BlocksWeight, GatedProduct):
    """The product act(gate) · up."""


class QkvBlocksProduct(_BlocksWeight, QkvProduct):
    """The product of queries, keys and values, with RoPE and storing."""


KINDS: dict[Any, type[_BlocksWeight]] = {
    CudaProduct: PlainBlocksProduct, GatedProduct: GatedBlocksProduct, QkvProduct: QkvBlocksProduct
}  # fmt: skip


def product_of(kind: Any, weight: TritonWeight, bias: Tensor | None, **options: Any) -> Any:
    """Return the product of ``kind``, one of ``product.py``, with a packed weight.

    None if the format is not supported, or the kernel is unavailable.
    """
    try:
        return KINDS[kind](weight, bias, **options)
    except CudaError:
        return None
