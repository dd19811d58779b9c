"""The tensors of a GGUF model by transformers' names, unpacked when they are read."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specx.errors import OutOfMemoryError, is_out_of_memory
from specx.models.gguf.checkpoint import GgufCheckpoint
from specx.models.gguf.weights import GgufWeight
from specx.ops.block_matrix import BlockMatrix, unpack_rows

AT_ONCE = 1 << 24  # values whose blocks go to a device at once


class GgufTensors:
    """Tensors as ``Checkpoint`` has them. ``dtype``: of those that are returned.

    ``kept``: the formats whose matrices stay in blocks, where a kernel reads them.
    """

    def __init__(
        self,
        gguf: GgufCheckpoint,
        device: torch.device,
        dtype: torch.dtype,
        kept: Collection[str] = (),
    ) -> None:
        self.label, self.device, self.dtype = gguf.label, device, dtype
        self._weights, self._kept = gguf.weights, kept

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._weights)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._weights[name].shape

    def joined(self, names: Sequence[str]) -> Tensor:
        """Unpack tensors [N, ...], one below the other, onto the device, or leave them in blocks.

        Raises KeyError if one is not there, OutOfMemoryError.
        """
        weights = [self._weights[name] for name in names]
        if all(len(each.shape) == 2 and each.format.name in self._kept for each in weights):
            return BlockMatrix([(each.packed(), each.format) for each in weights])
        rows = sum(weight.shape[0] for weight in weights)
        try:
            whole = torch.empty((rows, *weights[0].shape[1:]), dtype=self.dtype, device=self.device)
            first = 0
            for weight in weights:
                _unpack(weight, whole[first : first + weight.shape[0]])
                first += weight.shape[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemoryError(
                f"{self.label} does not fit into memory: too little memory; choose a smaller model."
            ) from error
        return whole


def _unpack(weight: GgufWeight, to: Tensor) -> None:
    """Unpack some rows at a time, on the device that they go to."""
    if len(weight.shape) < 2:
        to.copy_(weight.floats())
        return
    packed = weight.packed()
    step = max(1, AT_ONCE // weight.shape[-1])
    for first in range(0, len(packed), step):
        unpack_rows(packed[first : first + step].to(to.device), weight.format, to[first:][:step])
