"""Quantized checkpoints: find the method in the config, and decide whether it can be read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specx.errors import ModelError
from specx.models.families import family_of, text_config
from specx.models.grouped import STYLES, GroupStyle
from specx.ops.blocks import FP8, BlockFormat, by_name

MODELOPT = "hf_quant_config.json"  # where NVIDIA's tool says it, if not in the config
_MLX = {"group_size", "bits"}
_BYTES = 8  # bits


@dataclass(frozen=True)
class Reading:
    """The description of a quantized checkpoint's matrices.

    ``name``: the format's name in reports. ``style``, ``bits``: the layout and the bits of matrices
    quantized in groups of columns. ``packed``: the block format that holds such matrices exactly,
    according to the config; None without one.
    """

    name: str
    style: GroupStyle | None = None
    bits: int = 4
    packed: BlockFormat | None = None


def quantization(raw: Mapping[str, Any], folder: Path) -> str | None:
    """Return a checkpoint's quantization method; None if it is not quantized."""
    settings = raw.get("quantization_config") or text_config(raw).get("quantization_config")
    if not settings:
        if isinstance(raw.get("quantization"), Mapping):
            return "mlx"
        return "modelopt" if (folder / MODELOPT).is_file() else None
    if not isinstance(settings, Mapping):
        return "an unnamed method"
    method = settings.get("quant_method")
    if method is None and {*settings} >= _MLX and "quant_algo" not in settings:
        return "mlx"
    if method is None and ("quant_algo" in settings or "config_groups" in settings):
        return "modelopt"
    return "an unnamed method" if method is None else str(method)


def reading_of(raw: Mapping[str, Any], method: str | None, folder: Path) -> Reading | None:
    """Return how to read a checkpoint's matrices; None if unquantized, or specx cannot read them.

    Settings of activations are ignored: activations are not rounded.
    """
    settings = raw.get("quantization_config") or text_config(raw).get("quantization_config") or {}
    if method == "mxfp4" and raw.get("model_type") == "gpt_oss":
        return Reading("MXFP4", packed=by_name("MXFP4"))
    if method == "modelopt":
        kind = _format(raw, folder)
        by_kind = {"FP8": Reading("FP8", packed=FP8), "NVFP4": Reading("NVFP4", STYLES["nvfp4"])}
        return by_kind.get(kind)
    if method in ("fp8", "fbgemm_fp8"):
        return Reading("FP8", packed=FP8)
    if method == "compressed-tensors":
        return _compressed(settings)
    if method not in ("gptq", "awq"):
        return None
    bits, style = settings.get("bits", settings.get("w_bit")), method
    if method == "gptq":
        style = str(settings.get("checkpoint_format") or "gptq")
        even, ordered = settings.get("sym", True), settings.get("desc_act", False)
    else:
        even, ordered = not settings.get("zero_point", True), False
        if str(settings.get("version", "gemm")).lower() != "gemm":
            return None
    if bits not in (4, _BYTES) or style not in STYLES or (method == "awq" and bits != 4):
        return None
    return Reading(method.upper(), STYLES[style], bits, None if ordered else _blocks(bits, even))


def _compressed(settings: Mapping[str, Any]) -> Reading | None:
    """Return how matrices of compressed-tensors are read, by the weight settings of all groups."""
    groups = (settings.get("config_groups") or {}).values()
    kinds = [group.get("weights") or {} for group in groups if isinstance(group, Mapping)]
    sparse = (settings.get("sparsity_config") or {}).get("format", "dense") != "dense"
    found = {(kind.get("type", "int"), kind.get("num_bits")) for kind in kinds}
    if sparse or len(found) != 1:
        return None
    (kind, bits), strategies = found.pop(), {each.get("strategy") for each in kinds}
    if (kind, bits) == ("float", _BYTES):
        return Reading("FP8", packed=FP8)
    if (kind, bits) == ("float", 4) and strategies == {"tensor_group"}:
        return Reading("NVFP4", STYLES["nvfp4-pack-quantized"])
    formats = {str(each.get("format")) for each in (settings, *settings["config_groups"].values())}
    is_packed = "pack-quantized" in formats and strategies <= {"group", "channel"}
    if kind != "int" or bits not in (4, _BYTES) or not is_packed:
        return None
    even = all(each.get("symmetric", True) for each in kinds)
    ordered = any(each.get("actorder") in ("group", True) for each in kinds)
    blocks = None if ordered else _blocks(bits, even)
    return Reading(f"W{bits}A16", STYLES["pack-quantized"], bits, blocks)


def _blocks(bits: int, even: bool) -> BlockFormat | None:
    """Return the block format for integers; ``even``: all zero points are half of the range."""
    if bits == _BYTES:
        return by_name("Q8_0") if even else None
    return by_name("Q4_0" if even else "Q5_0")


def check_quantized(raw: Mapping[str, Any], method: str, folder: Path, label: str) -> None:
    """Raise ModelError for a quantized checkpoint that specx does not read."""
    kind = _format(raw, folder)
    names = {"mlx": "MLX", "modelopt": f"NVIDIA's ModelOpt ({kind})" if kind else "ModelOpt"}
    of_kind = "" if family_of(raw) else f" for {raw.get('model_type')}"
    raise ModelError(
        f"{label} is quantized with {names.get(method, method)}, which specx does not read in this "
        f"configuration{of_kind}; choose the checkpoint that is not quantized, or one in GGUF."
    )


def _format(raw: Mapping[str, Any], folder: Path) -> str:
    """Return the number format stated by ModelOpt; empty if there is none."""
    settings = raw.get("quantization_config")
    try:
        if not settings:
            settings = json.loads((folder / MODELOPT).read_bytes())["quantization"]
        return str(settings["quant_algo"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
