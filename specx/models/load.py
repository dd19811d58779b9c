"""Load a target or a draft: from its files to a model ready for decoding."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from specx.errors import ModelError, UsageError
from specx.models.decoder_files import load_decoder, load_gguf, parameters
from specx.models.families import family_of, read_architecture
from specx.models.families.text_part import has_parts
from specx.models.gguf.checkpoint import parts_of
from specx.models.loaded import LoadedModel, ModelSpec, Role, no_int8
from specx.models.model_files import (
    ModelFiles,
    fetch_weights,
    open_model,
    packing_of,
    stated_dtype,
)
from specx.models.quantized import check_quantized
from specx.models.source import ModelSource


def load_model(
    spec: ModelSpec,
    device: str | torch.device,
    role: Role,
    *,
    positions: int | None = None,
    check: Callable[[ModelFiles], None] | None = None,
) -> LoadedModel:
    """Load a model, and check that specx computes it correctly.

    ``positions``: the number of usable positions, by default the model's window. ``check``: called
    before weights are searched for.

    Raises ModelError (exit 4) for a model that is missing, damaged or not supported,
    OutOfMemoryError (exit 5) if it does not fit, and UsageError (exit 2) for a missing device.
    """
    files = open_model(spec, device, role)
    check_config(files)
    if spec.offload and (files.device.type == "cpu" or not files.runs_natively):
        runs = "on a CPU" if files.device.type == "cpu" else "on transformers' modules"
        raise UsageError(
            f"`target.offload: cpu` needs a GPU, and a model that specx computes itself; "
            f"{spec.model} runs {runs} here, so remove this setting."
        )
    if check is not None:
        check(files)
    model = _own_decoder(files, positions) or _by_transformers(files, positions)
    cache_dtype = spec.cache_dtype(model.dtype, model.device)
    model = replace(model, weights_from=weights_from(files.source))
    return model if cache_dtype == model.dtype else replace(model, cache_dtype=cache_dtype)


def weights_from(source: ModelSource) -> str:
    """Return an identification of a model's weight files; empty if there are none."""
    folder, endings = source.folder, (".safetensors", ".bin")
    files: Sequence[Path] = parts_of(source.gguf, source.label) if source.gguf else ()
    files = files or sorted(each for each in folder.glob("*") if each.suffix in endings)
    states = [(os.path.realpath(file), file.stat()) for file in files]
    return "; ".join(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)


def check_config(files: ModelFiles) -> None:
    """Refuse a model that specx and transformers cannot run, by its config. Raises ModelError."""
    raw, label = files.raw, files.source.label
    known = family_of(raw) is not None
    if not known:
        from specx.models.seam_config import check_kind

        check_kind(raw, label)
    elif raw.get("kv_lora_rank"):  # whose heads transformers' modules could not serve
        read_architecture(raw, label)
    if files.method is None or files.runs_natively:
        return
    if not known:  # then the checkpoint that is not quantized must run
        from specx.models.seam import judge

        judge(files, None)
    check_quantized(raw, files.method, files.source.folder, label)


_GENERATES = ("ForCausalLM", "ForConditionalGeneration")  # how classes of whole models end


def _own_decoder(files: ModelFiles, positions: int | None) -> LoadedModel | None:
    """Load our own decoder; None for a model left to transformers."""
    raw, label = files.raw, files.source.label
    if files.spec.must_round and files.gguf is None and files.reading is None:
        raise no_int8(label)
    if files.gguf is not None:  # which transformers could not read as exactly
        _ = files.tokenizer  # refused, if it cannot be read, before the weights are
        return load_gguf(files, files.gguf)
    if not files.runs_natively:
        return None
    if not all(str(name).endswith(_GENERATES) for name in raw.get("architectures") or []):
        return None
    try:
        architecture = read_architecture(raw, label)
    except ModelError as refusal:
        if has_parts(raw):
            raise
        try:  # it may know what the config means
            return _by_transformers(files, positions)
        except ModelError:
            raise refusal from None
    _ = files.tokenizer  # refused, if it is missing, before gigabytes come down the line
    spec, stored = architecture.spec, stated_dtype(raw) or torch.float32
    packing = packing_of(files, spec, stored, parameters(spec, architecture.weights))
    source, found = fetch_weights(files, stored, packing)
    if any(file.suffix != ".safetensors" for file in found):
        if has_parts(raw):
            raise ModelError(
                f"{label} has its weights in torch files, which specx does not read for a "
                "multimodal model; choose a checkpoint in safetensors."
            )
        return None
    return load_decoder(replace(files, source=source), found)


def _by_transformers(files: ModelFiles, positions: int | None) -> LoadedModel:
    from specx.models.seam import load_modules

    return load_modules(files, positions)
