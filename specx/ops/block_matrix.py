"""A weight in blocks, which is a tensor to all who do not ask: they find it unpacked to float32."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from torch.utils._pytree import tree_map

from specx.ops.blocks import BlockFormat

AT_ONCE = 1 << 17  # values that torch unpacks at once, so that what is between fits into a cache
Part = tuple[Tensor, BlockFormat]  # uint8 [rows, bytes of a row]


class BlockMatrix(Tensor):
    """A matrix float32 [N, K] on a CPU that is held in blocks.

    ``parts``: rows one below the other, each part in a format of its own. What kernels have no
    function of their own for reads ``unpack``; embeddings read the rows they need.
    """

    parts: tuple[Part, ...]

    @staticmethod
    def __new__(cls, parts: Sequence[Part]) -> "BlockMatrix":
        blocks, form = parts[0]
        rows = sum(len(each) for each, _ in parts)
        size = rows, blocks.shape[1] // form.bytes * form.values
        return Tensor._make_wrapper_subclass(cls, size, dtype=torch.float32, device=blocks.device)

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = tuple(parts)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"BlockMatrix({tuple(self.shape)}, {', '.join(form.name for _, form in self.parts)})"

    def unpack(self) -> Tensor:
        """Return float32 [N, K]."""
        whole = torch.empty(self.shape, dtype=torch.float32, device=self.device)
        first = 0
        for blocks, form in self.parts:
            unpack_rows(blocks, form, whole[first : first + len(blocks)])
            first += len(blocks)
        return whole

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows (int64) as float32 [..., K]."""
        flat, found = ids.flatten(), torch.empty(ids.numel(), self.shape[1], device=self.device)
        begin = 0
        for blocks, form in self.parts:
            mine = (flat >= begin) & (flat < begin + len(blocks))
            if bool(mine.any()):
                found[mine] = form.unpack(blocks[flat[mine] - begin])
            begin += len(blocks)
        return found.view(*ids.shape, -1)

    def reordered(self, rows: Tensor) -> Tensor:
        """Return the matrix with its rows in another order, in which each stays in its part."""
        parts, begin = [], 0
        for blocks, form in self.parts:
            own = rows[begin : begin + len(blocks)] - begin
            if bool(((own < 0) | (own >= len(blocks))).any()):
                return self.unpack()[rows]
            parts.append((blocks[own], form))
            begin += len(blocks)
        return BlockMatrix(parts)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer here what every run asks: torch's dispatch imports all of its distributed tensors
        when it first meets a tensor like this one, which takes seconds and 35 MB."""
        if func is Tensor.detach:
            return args[0]
        if func is embedding and isinstance(args[1], BlockMatrix):
            return args[1].rows(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        matrix = args[0]
        if func is torch.ops.aten.detach.default:
            return matrix
        if func is torch.ops.aten.embedding.default and isinstance(matrix, BlockMatrix):
            return matrix.rows(args[1])
        if func is torch.ops.aten.index.Tensor and len(args[1]) == 1:
            (rows,) = args[1]
            if len(rows) == len(matrix):
                return matrix.reordered(rows)
        args, kwargs = tree_map(_unpacked, (args, kwargs or {}))
        return func(*args, **kwargs)


def unpack_rows(blocks: Tensor, form: BlockFormat, to: Tensor) -> None:
    """Unpack rows uint8 [N, bytes] to float32, or another format, [N, K] on the same device."""
    step = max(1, AT_ONCE // to.shape[1])
    for first in range(0, len(blocks), step):
        to[first : first + step].copy_(form.unpack(blocks[first : first + step]))


def _unpacked(value: Any) -> Any:
    return value.unpack() if isinstance(value, BlockMatrix) else value
