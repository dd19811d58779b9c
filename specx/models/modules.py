"""The old way of loading: an unmodified class of transformers, checked, and its facts.

It serves models that no family describes (``families/``), and quantized ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pickle import UnpicklingError
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from specx.errors import ModelError, OutOfMemoryError, SpecxError, is_out_of_memory
from specx.kernels.trees import MAX_ROWS
from specx.models import attention
from specx.models.architecture import check_layers, read_config
from specx.models.config_file import SUPPORTED
from specx.models.facts import model_facts
from specx.models.families import family_of
from specx.models.fused_layers import fuse_layers
from specx.models.gguf.modules import transformers_config, transformers_model
from specx.models.load import (
    DTYPES,
    LoadedModel,
    ModelFiles,
    attending_ops,
    check_fit,
    fetch_weights,
    unpacked_dtype,
)
from specx.models.quiet import quiet_transformers
from specx.models.reason import reason
from specx.models.rope import check_fixed_rope, check_piecewise, rope_kind, window
from specx.models.seam import check_rotation, check_seam
from specx.models.seam_trial import check_pieces
from specx.models.source import ModelSource


def load_modules(files: ModelFiles, positions: int | None) -> LoadedModel:
    """Load a model as ``load_model`` does."""
    source, spec = files.source, files.spec
    with quiet_transformers():
        config, tokenizer = _config(files), files.tokenizer
        used = positions or window(config, getattr(tokenizer, "model_max_length", None))
        with _explained(files):
            check_layers(config, source.label, used)
            if files.role == "draft":
                check_fixed_rope(config, source.label)
            check_piecewise(config, source.label)
        stored = getattr(config, "dtype", None) or torch.float32
        if files.gguf is None:
            source, _ = fetch_weights(files, stored, is_quantized=bool(_quantization(config)))
        model = _load_weights(files, source, config)
        loaded = in_memory(model, tokenizer, spec.model, spec.attention)
        if files.gguf is not None:
            formats = ", ".join(files.gguf.formats())
            kind = str(loaded.dtype).removeprefix("torch.")
            loaded = replace(loaded, formats=f"{formats}, unpacked to {kind}")
        with _explained(files):
            loaded = _tried(loaded, files, config, used)
    fuse_layers(model, loaded.ops)
    return loaded


def _tried(loaded: LoadedModel, files: ModelFiles, config: Any, used: int) -> LoadedModel:
    """Return the model with what trial runs have shown. Raises ModelError for what they refuse."""
    label = files.source.label
    scalings = check_seam(loaded.model, loaded, label, used)
    if family_of(files.raw) is None:  # those of known families are causal and heed positions
        check_pieces(loaded, label, is_quantized=bool(_quantization(config)))
    if files.role == "draft":
        check_rotation(loaded.model, loaded, label)
    return replace(loaded, stated=files.stated, scalings=scalings, window=_room(loaded, config))


@contextmanager
def _explained(files: ModelFiles) -> Iterator[None]:
    """Say of a model that is refused if a decoder of our own computes it on a CPU."""
    try:
        yield
    except ModelError as error:
        family = family_of(files.raw)
        if files.device.type == "cpu" or family is None or files.raw.get("quantization_config"):
            raise
        raise ModelError(
            f"{files.source.label} is of the family {family.name} and has layers that specx "
            "computes on a CPU alone for now; choose --device cpu, or another model."
        ) from error


def _room(loaded: LoadedModel, config: Any) -> int:
    """Return the most tokens of a text, so that a tree behind it has positions as well.

    Where positions are learned there are no more, and dynamic frequencies would change for all rows
    of a pass that has one beyond.
    """
    ends = loaded.rope is None or rope_kind(config) == "dynamic"
    return max(1, loaded.window - MAX_ROWS) if ends else loaded.window


def in_memory(model: Any, tokenizer: Any, source: str, attention: str = "auto") -> LoadedModel:
    """Wrap a model that is on its device already, with its facts.

    Raises ModelError when it states no window, and as ``attending_ops`` does.
    """
    facts = model_facts(model, tokenizer)
    return LoadedModel(
        **vars(facts),
        model=model,
        tokenizer=tokenizer,
        source=source,
        dtype=model.dtype,
        device=model.device,
        weight_bytes=_bytes_of(model),
        ops=attending_ops(source, attention, model.device, model.dtype, facts.head_dim),
    )


def _config(files: ModelFiles) -> Any:
    if files.gguf is not None:
        return transformers_config(files.gguf)
    return read_config(files.source.folder, files.source.label)


def _load_weights(files: ModelFiles, source: ModelSource, config: Any) -> Any:
    attention.register()
    how = {"attn_implementation": attention.NAME}
    method = _quantization(config)
    if method == "fp8" and files.device.type == "cpu":  # what transformers asks for would not help
        raise _quantized_error(source, method, "computes on a GPU alone")
    try:
        if files.gguf is not None:
            dtype = unpacked_dtype(files)
            check_fit(files.gguf.bytes_in((), dtype), source, files.device)
            model, report = transformers_model(files.gguf, config, dtype, **how)
        else:
            model, report = AutoModelForCausalLM.from_pretrained(
                source.folder,
                config=config,
                dtype=DTYPES[files.spec.dtype] or "auto",
                trust_remote_code=False,
                local_files_only=True,
                weights_only=True,
                output_loading_info=True,
                **how,
            )
        model = model.to(files.device)
    except SpecxError:
        raise
    except Exception as error:  # file formats, quantizers and the allocator: no common class
        raise _loading_error(error, source, config) from error
    _check_complete(report, config, source.label)
    if method and getattr(model, "hf_quantizer", None) is None:
        # transformers warns about what it does not know or cannot do on a device, and goes on.
        known = method in AUTO_QUANTIZATION_CONFIG_MAPPING and files.device.type == "cpu"
        raise _quantized_error(
            source, method, "computes on a GPU alone" if known else "does not know"
        )
    attention.number_layers(model)
    return model.eval().requires_grad_(False)


def _quantized_error(source: ModelSource, method: str, why: str) -> ModelError:
    return ModelError(
        f"{source.label} is quantized with {method}, which transformers {why}; choose the "
        "checkpoint that is not quantized."
    )


def _loading_error(error: Exception, source: ModelSource, config: Any) -> Exception:
    label, why = source.label, reason(error)
    if is_out_of_memory(error):
        return OutOfMemoryError(
            f"{label} does not fit into memory: too little memory; choose a smaller model or a "
            "smaller dtype."
        )
    if _quantization(config):
        return ModelError(
            f"{label} is quantized with {_quantization(config)}, which cannot be loaded here "
            f"({why}); install what it needs, or choose the checkpoint that is not quantized."
        )
    if isinstance(error, KeyError) and error.args == (attention.NAME,):
        return ModelError(
            f"{label} ({config.model_type}) does not call the attention interface of "
            f"transformers, so specx cannot compute its attention; {SUPPORTED}."
        )
    if isinstance(error, UnpicklingError):
        return ModelError(
            f"{label} has a torch file that is damaged or holds Python objects, which specx never "
            "runs; choose a checkpoint in safetensors."
        )
    if "ismatch" in str(error):
        return ModelError(
            f"{label} has weights of another shape than its config.json states; download it again."
        )
    return ModelError(
        f"{label} has weights that cannot be read ({why}); download it again, or choose a "
        "checkpoint in safetensors."
    )


def _quantization(config: Any) -> str | None:
    """Return the method by which a checkpoint is quantized; None when it is not."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    stated = settings if isinstance(settings, dict) else vars(settings)
    return str(stated.get("quant_method", "an unnamed method"))


def _check_complete(report: dict[str, Any], config: Any, label: str) -> None:
    """Refuse what transformers only warns about: weights it had to invent, or left aside."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{label} lacks {len(missing)} of its weights, the first is {missing[0]}; the "
            "checkpoint is incomplete or of another architecture."
        )
    ignored = sorted(
        key for key in report["unexpected_keys"] if _belongs_to_layer(key, config.num_hidden_layers)
    )
    if ignored:
        raise ModelError(
            f"{label} has weights that its architecture does not use, the first is {ignored[0]}; "
            "its config.json names another architecture than it was trained with."
        )


def _belongs_to_layer(key: str, num_layers: int) -> bool:
    """Return True if a tensor lies in a computed layer and is no leftover of older formats."""
    parts = key.split(".")
    numbers = [int(part) for part in parts if part.isdigit()]
    inside = "layers" in parts and bool(numbers) and numbers[0] < num_layers
    return inside and "rotary_emb" not in parts and parts[-1] in ("weight", "bias")


def _bytes_of(model: Any) -> int:
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())
