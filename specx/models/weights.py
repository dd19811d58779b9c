"""The weight files of a checkpoint: which they are, whether they are whole, how big they are."""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specx.errors import ModelError, reason
from specx.models.source import ModelSource

SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_HEADER_LENGTH = 8  # bytes in front of a safetensors header, little endian
_LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # what loading converts to the wanted dtype


@dataclass(frozen=True)
class WeightSize:
    """Sizes of a checkpoint's tensors as stored.

    ``floats`` counts elements of floating-point tensors, ``float_bytes`` their bytes, and
    ``other_bytes`` everything that keeps its own type (packed integers, float8).
    """

    floats: int
    float_bytes: int
    other_bytes: int

    def loaded(self, itemsize: int | None) -> int:
        """Return the bytes once loaded with ``itemsize`` per float; None keeps the stored type."""
        floats = self.float_bytes if itemsize is None else self.floats * itemsize
        return floats + self.other_bytes


def weight_files(source: ModelSource) -> tuple[Path, ...]:
    """Find the files with the weights, in the order in which transformers looks for them.

    Downloads them when they come from the hub. Raises ModelError when there are none or when a
    shard of the index is missing.
    """
    for single, index in zip(SINGLE, INDEXES, strict=True):
        names = [single]
        if not (source.folder / single).is_file() and (source.folder / index).is_file():
            names = _shards(source.folder / index, source.label)
        folder = _fetched(source, names)
        if len(names) > 1 or (folder / names[0]).is_file():
            return _all_there(source, folder, names)
    _check_reachable(source)
    raise ModelError(
        f"{source.label} has no weights in a format that specx reads; it needs "
        f"{SINGLE[0]} or {SINGLE[1]}, or one of them in shards with its index."
    )


def bytes_to_download(source: ModelSource) -> int | None:
    """Return the bytes, as stored, that the shard index of a hub model announces.

    None for a local folder, for weights that are in the cache, and without an index.
    """
    if source.hub_id is None or any(_any_weights(source.folder)):
        return None
    for name in INDEXES:
        try:
            index = json.loads((source.folder / name).read_text("utf-8"))
            return int(index["metadata"]["total_size"])
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None


def measure(files: tuple[Path, ...], label: str, stored_itemsize: int) -> WeightSize:
    """Add up the tensors of the weight files without reading them.

    Torch files have no cheap header: their whole size counts as floats of ``stored_itemsize``
    bytes. Raises ModelError for a safetensors file that is cut short or damaged.
    """
    sizes = [
        _measure_safetensors(file, label)
        if file.suffix == ".safetensors"
        else WeightSize(file.stat().st_size // stored_itemsize, file.stat().st_size, 0)
        for file in files
    ]
    return WeightSize(
        sum(size.floats for size in sizes),
        sum(size.float_bytes for size in sizes),
        sum(size.other_bytes for size in sizes),
    )


def _any_weights(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.suffix in (".safetensors", ".bin"))


def _shards(index: Path, label: str) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise ModelError(
            f"{label} has a damaged {index.name} ({reason(error)}); download it again."
        ) from error
    if not names or any(Path(name).name != name for name in names):
        raise ModelError(f"{label} has an {index.name} that names no files beside it.")
    return names


def _fetched(source: ModelSource, names: list[str]) -> Path:
    if source.hub_id is None or all((source.folder / name).is_file() for name in names):
        return source.folder
    from specx.models import hub

    return hub.fetch_files(source.hub_id, source.revision, source.label, names)


def _check_reachable(source: ModelSource) -> None:
    """Raise ModelError for files of a hub model where the hub is switched off."""
    if source.hub_id is None:
        return
    from specx.models import hub

    if hub.is_offline():
        raise hub.unreachable(source.hub_id, source.revision, source.label)


def _all_there(source: ModelSource, folder: Path, names: list[str]) -> tuple[Path, ...]:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        _check_reachable(source)
        raise ModelError(
            f"{source.label} lacks the weight file {missing[0]} ({len(missing)} of {len(names)} "
            "are missing); download the model again."
        )
    return tuple(folder / name for name in names)


def _measure_safetensors(file: Path, label: str) -> WeightSize:
    header, start = _read_header(file, label)
    floats = float_bytes = other_bytes = end = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        try:
            first, last = tensor["data_offsets"]
            count, kind = math.prod(tensor["shape"]), tensor["dtype"]
        except (LookupError, TypeError, ValueError) as error:
            raise _damaged(file, label) from error
        end = max(end, last)
        if kind in _FLOATS:
            floats, float_bytes = floats + count, float_bytes + last - first
        else:
            other_bytes += last - first
    if start + end > file.stat().st_size:
        raise ModelError(
            f"{label} has a truncated weight file: {file.name} ends after "
            f"{file.stat().st_size} of {start + end} bytes; download it again."
        )
    return WeightSize(floats, float_bytes, other_bytes)


def _read_header(file: Path, label: str) -> tuple[dict, int]:
    """Read the header of a safetensors file, and the offset in bytes of its data."""
    with file.open("rb") as stream:
        prefix = stream.read(_HEADER_LENGTH)
        if len(prefix) < _HEADER_LENGTH:
            raise _damaged(file, label)
        (length,) = struct.unpack("<Q", prefix)
        text = stream.read(min(length, _LARGEST_HEADER))
    try:
        header = json.loads(text)
    except ValueError as error:
        raise _damaged(file, label) from error
    if len(text) < length or not isinstance(header, dict):
        raise _damaged(file, label)
    return header, _HEADER_LENGTH + length


def _damaged(file: Path, label: str) -> ModelError:
    return ModelError(
        f"{label} has a damaged weight file: {file.name} has no valid safetensors header; "
        "download it again."
    )
