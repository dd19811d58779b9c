"""Weights of published drafts: find them, read them, and check them by name and shape."""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specx.errors import ModelError
from specx.models import hub
from specx.profile import HUB_ID


def folder_of(model: str, label: str, files: tuple[str, ...]) -> Path:
    """Return the folder of a draft, a path or a hub id, whose files are fetched."""
    if HUB_ID.fullmatch(model):
        return hub.fetch_files(model, None, label, files)
    return Path(model).expanduser()


def read_tensors(folder: Path, names: tuple[str, ...], label: str) -> dict[str, Tensor]:
    """Read the first of the files that exists, safetensors or a pickle of tensors."""
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise ModelError(f"{label} has no {' or '.join(names)}.")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, SafetensorError, UnpicklingError, EOFError) as error:
        raise ModelError(f"{label} has a damaged {file.name}.") from error
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise ModelError(f"{label} has a {file.name} that is not a set of tensors.")
    return found


def check_shapes(
    tensors: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]],
    label: str,
) -> None:
    """Raise ModelError for a missing or unexpected tensor, or one of a wrong shape."""
    for name in shapes:
        if name not in tensors:
            raise ModelError(f"{label} lacks the tensor {name}.")
    for name, tensor in tensors.items():
        needed = shapes.get(name) or optional.get(name)
        if needed is None:
            raise ModelError(f"{label} has a tensor {name}, which its layout does not have.")
        if tensor.shape != needed:
            raise ModelError(
                f"{label} has {list(tensor.shape)} for {name}; the target calls for {list(needed)}."
            )
