"""Loading a target or a draft: an unmodified class of transformers, checked, and its facts."""

from dataclasses import dataclass, field, replace
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM

from specx.errors import ModelError, OutOfMemoryError, UsageError, is_out_of_memory
from specx.kernels.ops import Ops, ops_for
from specx.kernels.torch.flash_packages import UnusableError
from specx.models import attention
from specx.models.architecture import SUPPORTED, check_layers, read_config
from specx.models.call import PrefillCall, TreeCall
from specx.models.facts import ModelFacts, model_facts
from specx.models.fused_layers import fuse_layers
from specx.models.generation_file import Stated, read_generation
from specx.models.memory import check_memory
from specx.models.quiet import quiet_transformers
from specx.models.reason import reason
from specx.models.rope import check_fixed_rope, check_piecewise, window
from specx.models.seam import check_rotation, check_seam
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
    device = usable(device)
    if spec.dtype not in DTYPES:
        raise ModelError(f"The dtype {spec.dtype} is unknown; use one of {', '.join(DTYPES)}.")
    with quiet_transformers():
        source = locate(spec.model, spec.revision, role)
        config = read_config(source.folder, source.label)
        tokenizer = load_tokenizer(source.folder, source.label)
        used = positions or window(config, getattr(tokenizer, "model_max_length", None))
        check_layers(config, source.label, used)
        if role == "draft":
            check_fixed_rope(config, source.label)
        check_piecewise(config, source.label)
        stated = read_generation(source.folder, source.label)
        source = _fetch_weights(source, config, DTYPES[spec.dtype], device)
        model = _load_weights(source, config, spec.dtype, device)
        loaded = replace(in_memory(model, tokenizer, spec.model, spec.attention), stated=stated)
        check_seam(model, loaded, source.label, used)
        if role == "draft":
            check_rotation(model, loaded, source.label)
    fuse_layers(model, loaded.ops)
    return loaded


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


def _fetch_weights(
    source: ModelSource, config: Any, dtype: torch.dtype | None, device: torch.device
) -> ModelSource:
    """Download the weights where needed, and see that they are whole and fit into memory."""
    stored = getattr(config, "dtype", None) or torch.float32
    wanted = None if dtype is None else dtype.itemsize
    stated = bytes_to_download(source)
    if stated is not None and not _quantization(config):
        # Refused before gigabytes come down the line; the exact answer needs the files.
        needed = stated * (wanted or stored.itemsize) // stored.itemsize
        _check_fit(needed, source, device)
    files = weight_files(source)
    needed = measure(files, source.label, stored.itemsize).loaded(wanted)
    _check_fit(needed, source, device)
    return ModelSource(files[0].parent, source.label, source.hub_id, source.revision)


def _check_fit(needed: int, source: ModelSource, device: torch.device) -> None:
    check_memory(needed, device, source.label)
    if device.type != "cpu":  # the weights pass through main memory on their way
        check_memory(needed, torch.device("cpu"), source.label)


def _load_weights(source: ModelSource, config: Any, dtype: str, device: torch.device) -> Any:
    attention.register()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            source.folder,
            config=config,
            dtype=DTYPES[dtype] or "auto",
            attn_implementation=attention.NAME,
            trust_remote_code=False,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
        model = model.to(device)
    except Exception as error:  # file formats, quantizers and the allocator: no common class
        raise _loading_error(error, source, config) from error
    _check_complete(report, config, source.label)
    if _quantization(config) and getattr(model, "hf_quantizer", None) is None:
        raise ModelError(  # transformers warns about a method that it does not know, and goes on
            f"{source.label} is quantized with {_quantization(config)}, which transformers does "
            "not know; choose the checkpoint that is not quantized."
        )
    attention.number_layers(model)
    return model.eval().requires_grad_(False)


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
