"""Loading a target or a draft: from its files to a model that is ready for the engine."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from specx.errors import ModelError, UsageError
from specx.kernels.ops import Ops, ops_for
from specx.kernels.torch.flash_packages import UnusableError
from specx.models.call import PrefillCall, TreeCall
from specx.models.config_file import read_raw
from specx.models.facts import ModelFacts
from specx.models.generation_file import Stated, read_generation
from specx.models.memory import check_memory
from specx.models.reason import reason
from specx.models.source import ModelSource, locate
from specx.models.tokenizer_files import load_tokenizer
from specx.models.weights import bytes_to_download, measure, weight_files

Role = Literal["target", "draft"]
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "auto": None,
}


@dataclass(frozen=True)
class ModelSpec:
    """Which model to load.

    ``model`` is a hub id, a local folder, ``embedded:target`` or ``embedded:draft``; ``revision``
    a branch, tag or commit of the hub; ``dtype`` one of float32, float16, bfloat16, or auto for
    what the checkpoint states; ``attention`` as in a profile.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    attention: str = "auto"


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelFacts):
    """A model ready for the engine, in evaluation mode and without gradients.

    ``source`` is what the user called it; ``weight_bytes`` counts every tensor once; ``ops``: the
    operations of its device; ``compiled``: its layers are (``compiled.py``); ``stated``: by its own
    ``generation_config.json``, how tokens are to be chosen; ``prefill_call``, ``tree_call``: the
    records its forward passes are called with.
    """

    model: Any
    tokenizer: Any
    source: str
    dtype: torch.dtype
    device: torch.device
    weight_bytes: int
    ops: Ops
    compiled: bool = False
    stated: Stated = field(default_factory=Stated)
    prefill_call: type[PrefillCall] = PrefillCall
    tree_call: type[TreeCall] = TreeCall


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A model that was found, and all that is read of it before its weights.

    ``raw``: its ``config.json`` as it is written; ``stated``: as of ``LoadedModel``.
    """

    spec: ModelSpec
    device: torch.device
    role: Role
    source: ModelSource
    raw: dict[str, Any]
    tokenizer: Any
    stated: Stated


def load_model(
    spec: ModelSpec,
    device: str | torch.device,
    role: Role,
    *,
    positions: int | None = None,
) -> LoadedModel:
    """Load a model and see that specx computes it correctly.

    ``positions`` is the number of tokens that may be used, by default the model's window.

    Raises ModelError (exit 4) for a model that is missing, damaged or not supported, and
    OutOfMemoryError (exit 5) when it does not fit, UsageError (exit 2) for a device that is not
    there; each message is one sentence.
    """
    files = _open(spec, usable(device), role)
    from specx.models.modules import load_modules

    return load_modules(files, positions)


def _open(spec: ModelSpec, device: torch.device, role: Role) -> ModelFiles:
    if spec.dtype not in DTYPES:
        raise ModelError(f"The dtype {spec.dtype} is unknown; use one of {', '.join(DTYPES)}.")
    source = locate(spec.model, spec.revision, role)
    raw = read_raw(source.folder, source.label)
    return ModelFiles(
        spec=spec,
        device=device,
        role=role,
        source=source,
        raw=raw,
        tokenizer=load_tokenizer(source.folder, source.label),
        stated=read_generation(source.folder, source.label),
    )


def attending_ops(
    source: str, attention: str, device: torch.device, dtype: torch.dtype, head_dim: int
) -> Ops:
    """Return the operations of a device for a model, with the ``attention`` of a profile.

    Raises UsageError for a package that is asked for and cannot be used.
    """
    try:
        return ops_for(device, attention, dtype, head_dim)
    except UnusableError as reason:
        raise UsageError(
            f"{source} cannot use `attention: {attention}` here: {reason}; choose auto, or see "
            "what `specx doctor` finds."
        ) from reason


def usable(device: str | torch.device) -> torch.device:
    """Try the device and return it. Raises UsageError for one that is not there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter: torch was built without CUDA
        raise UsageError(
            f"The device {device} cannot be used ({reason(error)}); choose cpu, or see what "
            "`specx doctor` finds."
        ) from error
    return torch.device(device)


def fetch_weights(
    files: ModelFiles, stored: torch.dtype, *, is_quantized: bool
) -> tuple[ModelSource, tuple[Path, ...]]:
    """Download the weights where needed, and see that they are whole and fit into memory.

    ``stored``: the dtype that the config states. Returns where they are, and their files.
    """
    source, device, dtype = files.source, files.device, DTYPES[files.spec.dtype]
    wanted = None if dtype is None else dtype.itemsize
    stated = bytes_to_download(source)
    if stated is not None and not is_quantized:
        # Refused before gigabytes come down the line; the exact answer needs the files.
        needed = stated * (wanted or stored.itemsize) // stored.itemsize
        _check_fit(needed, source, device)
    found = weight_files(source)
    needed = measure(found, source.label, stored.itemsize).loaded(wanted)
    _check_fit(needed, source, device)
    source = ModelSource(found[0].parent, source.label, source.hub_id, source.revision)
    return source, found


def _check_fit(needed: int, source: ModelSource, device: torch.device) -> None:
    check_memory(needed, device, source.label)
    if device.type != "cpu":  # the weights pass through main memory on their way
        check_memory(needed, torch.device("cpu"), source.label)
