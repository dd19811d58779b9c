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

from specx.errors import ModelError, OutOfMemoryError, is_out_of_memory, reason

_FORMATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}


class Checkpoint:
    """Open files of safetensors: a context. Nothing is read but what is asked for.

    Names are those of a decoder of text (``text_name``). ``dtype``: of the tensors that are
    returned; None: as stored. ``label`` begins every sentence.
    """

    dtype: torch.dtype | None = None

    def __init__(self, files: Sequence[Path], label: str, device: torch.device) -> None:
        self.label, self.device = label, device
        self._files, self._opened = files, ExitStack()
        self._places: dict[str, tuple[Any, str]] = {}  # of each tensor: its file, and name in it

    def __enter__(self) -> Self:
        with self._opened:
            for file in self._files:
                try:
                    opened = self._opened.enter_context(safe_open(file, framework="pt"))
                except (SafetensorError, OSError, ValueError) as error:
                    raise unreadable(self.label, error) from error
                names = opened.keys()
                self._places |= {text_name(name): (opened, name) for name in names}
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

    def stored_dtype(self, name: str) -> torch.dtype:
        """Return the number format in which a tensor is stored. Raises KeyError."""
        return _FORMATS.get(self._slice(name).get_dtype(), torch.float32)

    def _slice(self, name: str) -> Any:
        opened, stored_name = self._places[name]
        return opened.get_slice(stored_name)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, which is not read. Raises KeyError if there is none."""
        return tuple(self._slice(name).get_shape())

    def joined(self, names: Sequence[str]) -> Tensor:
        """Read tensors [N, ...], one below the other, into memory of their own on the device.

        Raises KeyError if one is not there, ModelError where it cannot be read or is no
        floating-point number, OutOfMemoryError.
        """
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
                raise no_room(self.label) from error
            raise unreadable(self.label, error) from error
        assert whole is not None
        return whole

    def _stored(self, name: str) -> Tensor:
        opened, stored_name = self._places[name]
        stored: Tensor = opened.get_tensor(stored_name)
        if not stored.is_floating_point() or stored.itemsize < 2:
            raise ModelError(
                f"{self.label} has a tensor {name} of {stored.dtype}, which is not supported; "
                "choose the checkpoint that is not quantized."
            )
        return stored


def text_name(name: str) -> str:
    """Return the name that a tensor has in a checkpoint of the text part alone.

    Checkpoints that also read pictures have the same decoder under a prefix.
    """
    for prefix, own in (("model.language_model.", "model."), ("language_model.", "")):
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name


def read_torch_file(file: Path, label: str) -> dict[str, Tensor]:
    """Map a file of torch into memory: its tensors by name.

    Raises ModelError for one that is damaged, or holds anything but plain tensors: no Python object
    is ever made of it.
    """
    try:
        if not is_zipfile(file):
            raise pickled(label)
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        raise pickled(label) from error
    except (RuntimeError, OSError, ValueError, EOFError) as error:
        raise unreadable(label, error) from error
    if not isinstance(found, dict):
        raise ModelError(f"{label} has a torch file that is no mapping of names to tensors.")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or not _is_plain(tensor):
            raise ModelError(f"{label} has no plain tensor under {name!r} in {file.name}.")
    return found


def pickled(label: str) -> ModelError:
    """Return the error for a torch file that is more, or less, than tensors."""
    return ModelError(
        f"{label} has a torch file that is damaged, of an old format, or holds Python objects, "
        "which specx never runs; choose a checkpoint in safetensors."
    )


def no_room(label: str) -> OutOfMemoryError:
    """Return the error for weights that the allocator has no room for."""
    return OutOfMemoryError(
        f"{label} does not fit into memory: too little memory; choose a smaller model or a smaller "
        "dtype."
    )


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
