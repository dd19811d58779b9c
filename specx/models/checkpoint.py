"""The tensors of a checkpoint by name, read one at a time and straight to their device."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Any, Self
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specx.errors import ModelError, OutOfMemoryError, is_out_of_memory
from specx.models.reason import reason


class Checkpoint:
    """Open weight files: a context. Nothing is read but what is asked for.

    ``dtype``: of the tensors that are returned; None: as stored. ``label`` begins every sentence.
    """

    def __init__(
        self, files: Sequence[Path], label: str, device: torch.device, dtype: torch.dtype | None
    ) -> None:
        self.label, self.device, self.dtype = label, device, dtype
        self._files, self._opened = files, ExitStack()
        self._places: dict[str, Any] = {}  # of each tensor: its opened file, or all tensors of it

    def __enter__(self) -> Self:
        with self._opened:
            for file in self._files:
                names, place = self._open(file)
                self._places |= dict.fromkeys(names, place)
            self._opened = self._opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._places = {}
        self._opened.close()

    def _open(self, file: Path) -> tuple[Sequence[str], Any]:
        if file.suffix != ".safetensors":
            found = read_torch_file(file, self.label)
            return list(found), found
        try:
            opened = self._opened.enter_context(safe_open(file, framework="pt"))
        except (SafetensorError, OSError, ValueError) as error:
            raise unreadable(self.label, error) from error
        return list(opened.keys()), opened

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, which is not read. Raises KeyError if there is none."""
        place = self._places[name]
        if isinstance(place, dict):
            return tuple(place[name].shape)
        return tuple(place.get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        """Read a tensor into memory of its own, on the device and in the wanted dtype.

        Raises KeyError if there is none, ModelError where it cannot be read or is no floating-point
        number, OutOfMemoryError.
        """
        return self.joined([name])

    def joined(self, names: Sequence[str]) -> Tensor:
        """Read tensors [N, ...] one below the other, as ``read`` does."""
        shapes = [self.shape(name) for name in names]
        rows = [shape[0] if shape else 1 for shape in shapes]
        whole: Tensor | None = None
        try:
            for name, count, first in zip(names, rows, _sums(rows), strict=True):
                stored = self._stored(name)
                if whole is None:
                    size = (sum(rows), *stored.shape[1:]) if stored.ndim else ()
                    dtype = self.dtype or stored.dtype
                    whole = torch.empty(size, dtype=dtype, device=self.device)
                (whole[first : first + count] if stored.ndim else whole).copy_(stored)
        except (SafetensorError, RuntimeError, OSError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(
                    f"{self.label} does not fit into memory: too little memory; choose a smaller "
                    "model or a smaller dtype."
                ) from error
            raise unreadable(self.label, error) from error
        assert whole is not None
        return whole

    def _stored(self, name: str) -> Tensor:
        place = self._places[name]
        stored: Tensor = place[name] if isinstance(place, dict) else place.get_tensor(name)
        if not stored.is_floating_point() or stored.itemsize < 2:
            raise ModelError(
                f"{self.label} has a tensor {name} of {stored.dtype}, which is not supported; "
                "choose the checkpoint that is not quantized."
            )
        return stored


def read_torch_file(file: Path, label: str) -> dict[str, Tensor]:
    """Map a file of torch into memory: its tensors by name.

    Raises ModelError for one that is damaged, or holds anything but plain tensors: no Python object
    is ever made of it.
    """
    unread = ModelError(
        f"{label} has a torch file that is damaged, of an old format, or holds Python objects, "
        "which specx never runs; choose a checkpoint in safetensors."
    )
    try:
        if not is_zipfile(file):
            raise unread
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        raise unread from error
    except (RuntimeError, OSError, ValueError, EOFError) as error:
        raise unreadable(label, error) from error
    if not isinstance(found, dict):
        raise ModelError(f"{label} has a torch file that is no mapping of names to tensors.")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or not _is_plain(tensor):
            raise ModelError(f"{label} has no plain tensor under {name!r} in {file.name}.")
    return found


def unreadable(label: str, error: BaseException) -> ModelError:
    """Return the error for weights that are damaged."""
    return ModelError(
        f"{label} has weights that cannot be read ({reason(error)}); download it again, or choose "
        "a checkpoint in safetensors."
    )


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.device.type == "cpu"


def _sums(counts: Sequence[int]) -> list[int]:
    """Return the number of rows in front of each tensor."""
    return [sum(counts[:place]) for place in range(len(counts))]
