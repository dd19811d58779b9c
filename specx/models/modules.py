"""Models that transformers alone can run: an unmodified class of it, checked, behind the seam.

These are plain decoders with full attention that no family describes (``families/``), quantized
checkpoints, and files of torch.
"""

from dataclasses import replace
from pickle import UnpicklingError
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from specx.errors import ModelError, is_out_of_memory
from specx.kernels.trees import MAX_ROWS
from specx.models.architecture import check_layers, read_config
from specx.models.checkpoint import no_room, unreadable
from specx.models.config_file import SUPPORTED
from specx.models.decoder_files import check_complete
from specx.models.facts import model_facts
from specx.models.families import family_of
from specx.models.load import DTYPES, LoadedModel, ModelFiles, attending_ops, fetch_weights
from specx.models.quiet import quiet_transformers
from specx.models.reason import reason
from specx.models.rope import check_fixed_rope, check_piecewise, rope_kind, window
from specx.models.seam import NAME, SeamModel
from specx.models.seam_trial import SeamTrial
from specx.models.source import ModelSource


def load_modules(files: ModelFiles, positions: int | None) -> LoadedModel:
    """Load a model as ``load_model`` does."""
    source, spec, is_draft = files.source, files.spec, files.role == "draft"
    with quiet_transformers():
        config, tokenizer = read_config(source.folder, source.label), files.tokenizer
        used = positions or window(config, getattr(tokenizer, "model_max_length", None))
        check_layers(config, source.label, used)
        if is_draft:
            check_fixed_rope(config, source.label)
        check_piecewise(config, source.label)
        stored, method = getattr(config, "dtype", None) or torch.float32, _quantization(config)
        source, _ = fetch_weights(files, stored, is_quantized=bool(method))
        module = _load_weights(source, config, method, spec.dtype, files.device)
        loaded = in_memory(module, tokenizer, spec.model, spec.attention)
        trial = SeamTrial(loaded=loaded, label=source.label, positions=used)
        scalings = trial.scalings()
        if family_of(files.raw) is None:  # those of known families are causal and heed positions
            trial.check_pieces(is_quantized=bool(method))
        if is_draft:
            trial.check_rotation()
    room = loaded.window
    # Where positions are learned, a tree behind the text needs some as well, and dynamic
    # frequencies would change for all rows of a pass that has one beyond.
    if loaded.rope is None or rope_kind(config) == "dynamic":
        room = max(1, room - MAX_ROWS)
    return replace(loaded, stated=files.stated, scalings=scalings, window=room, config=files.raw)


def in_memory(module: Any, tokenizer: Any, source: str, attention: str = "auto") -> LoadedModel:
    """Wrap a model that is on its device already, with its facts; from now on it attends for specx.

    Raises ModelError when it states no window, and as ``attending_ops`` does.
    """
    facts = model_facts(module, tokenizer)
    module.set_attn_implementation(NAME)
    tensors = {t.data_ptr(): t.nbytes for t in (*module.parameters(), *module.buffers())}
    return LoadedModel(
        **vars(facts),
        model=SeamModel(module),
        tokenizer=tokenizer,
        source=source,
        dtype=module.dtype,
        device=module.device,
        weight_bytes=sum(tensors.values()),
        ops=attending_ops(source, attention, module.device, module.dtype, facts.head_dim),
    )


def _load_weights(
    source: ModelSource, config: Any, method: str | None, dtype: str, device: torch.device
) -> Any:
    if method == "fp8" and device.type == "cpu":  # what transformers asks for would not help
        raise _quantized(source, method, "transformers computes on a GPU alone;")
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            source.folder,
            config=config,
            dtype=DTYPES[dtype] or "auto",
            attn_implementation=NAME,
            trust_remote_code=False,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
        module = module.to(device)
    except Exception as error:  # file formats, quantizers and the allocator: no common class
        raise _loading_error(error, source, config, method) from error
    ignored = [n for n in report["unexpected_keys"] if _is_in_layer(n, config.num_hidden_layers)]
    check_complete(report["missing_keys"], ignored, source.label)
    if method and getattr(module, "hf_quantizer", None) is None:
        # transformers warns about what it does not know or cannot do on a device, and goes on.
        known = method in AUTO_QUANTIZATION_CONFIG_MAPPING and device.type == "cpu"
        why = "computes on a GPU alone" if known else "does not know"
        raise _quantized(source, method, f"transformers {why};")
    return module.eval().requires_grad_(False)


def _loading_error(
    error: Exception, source: ModelSource, config: Any, method: str | None
) -> Exception:
    if is_out_of_memory(error):
        return no_room(source.label)
    if method:
        why = f"cannot be loaded here ({reason(error)}); install what it needs, or"
        return _quantized(source, method, why)
    if isinstance(error, KeyError) and error.args == (NAME,):
        what = f"({config.model_type}) does not call the attention interface of transformers, so "
        what += f"specx cannot compute its attention; {SUPPORTED}"
    elif isinstance(error, UnpicklingError):
        what = "has a torch file that is damaged or holds Python objects, which specx never runs; "
        what += "choose a checkpoint in safetensors"
    elif "ismatch" in str(error):
        what = "has weights of another shape than its config.json states; download it again"
    else:
        return unreadable(source.label, error)
    return ModelError(f"{source.label} {what}.")


def _quantized(source: ModelSource, method: str, why: str) -> ModelError:
    return ModelError(
        f"{source.label} is quantized with {method}, which {why} choose the checkpoint that is not "
        "quantized."
    )


def _quantization(config: Any) -> str | None:
    """Return the method by which a checkpoint is quantized; None when it is not."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    stated = settings if isinstance(settings, dict) else vars(settings)
    return str(stated.get("quant_method", "an unnamed method"))


def _is_in_layer(name: str, layers: int) -> bool:
    """Return True if a tensor lies in one of so many layers."""
    parts = name.split(".")
    number = next((int(part) for part in parts if part.isdigit()), layers)
    return "layers" in parts and number < layers
