"""``specx doctor``: the machine, and the path that specx takes on it."""

import json
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from specx.cache_folder import cache_folder
from specx.cores import Others, choose_threads
from specx.profile import shipped_folder, user_folder
from specx.reports.environment import PACKAGES, environment, installed_version

Findings = dict[str, Any]  # sections and values, ready for JSON

OPTIONAL = ("triton", "flash-attn", "llvmlite")  # packages that make a GPU or a CPU faster
ATTENTION = {
    "cpu": "torch flash with packed rows",
    "triton": "Triton kernels for trees, torch flash for prefill (written-out scores in float32)",
    "flash-attn": "flash-attn for the text before a tree (untested; written-out scores in "
    "float32), torch flash for prefill; slow without Triton",
    "neither": "torch flash with packed rows (written-out scores in float32); slow without Triton",
}
HOPPER = "9.0"
GB = 10**9


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what this machine has and what specx will use. Nothing that is missing is an error."""
    report = examine()
    typer.echo(json.dumps(report, indent=2) if as_json else "\n".join(_lines(report)))


def examine() -> Findings:
    """Return all that ``specx doctor`` says; None for what is absent or unknown."""
    threads = choose_threads(None, os.environ, Others())
    threads.set(os.environ)  # before torch is imported, as before a summary
    torch = _torch()
    gpus = _gpus(torch)
    here = environment()
    return {
        "versions": {"python": here["python"], "specx": here["specx"], **here["packages"]},
        "optional": {package: installed_version(package) for package in OPTIONAL},
        "machine": {
            **{name: here[name] for name in ("platform", "cpu", "cpu_cores", "cpu_threads")},
            "torch_threads": torch.get_num_threads() if torch else None,
            "threads": threads.reason,
            "memory_gb": _memory(),
            "free_memory_gb": _free_memory(torch),
            "gpus": gpus,
        },
        "specx_will_use": _plan(torch, gpus),
        "models": {
            "embedded_pair": _embedded_pair(),
            "offline": os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"),
        },
        "folders": {
            "profiles": str(user_folder()),
            "shipped_profiles": str(shipped_folder()),
            "hub_cache": str(_hub_cache()),
            "cache": str(cache_folder()),
        },
    }


# ---------------------------------------------------------------- findings


def _torch() -> ModuleType | None:
    """Return torch, or None if it is absent or broken: then this command matters most."""
    try:
        import torch
    except Exception:  # a broken CUDA installation raises more than ImportError
        return None
    return torch


def _memory() -> float | None:
    """Return the physical memory in GB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
    return round(total / GB, 1)


def _free_memory(torch: ModuleType | None) -> float | None:
    """Return the GB that a model may take, within a container's limit. Loading checks the same."""
    if torch is None:
        return None
    from specx.models.memory import free_bytes

    free = free_bytes(torch.device("cpu"))
    return None if free is None else round(free / GB, 1)


def _gpus(torch: ModuleType | None) -> list[Findings]:
    """Return name, memory in GB and compute capability of every CUDA device."""
    if torch is None:
        return []
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [_gpu(torch.cuda.get_device_properties(index)) for index in range(count)]
    except Exception:  # a driver that does not fit: as good as no GPU
        return []


def _gpu(properties: Any) -> Findings:
    return {
        "name": properties.name,
        "memory_gb": round(properties.total_memory / GB, 1),
        "capability": f"{properties.major}.{properties.minor}",
    }


def _plan(torch: ModuleType | None, gpus: list[Findings]) -> Findings:
    """Return device, number format, attention, and the compiler of kernels where they matter."""
    path = _attention(gpus)
    plan = {
        "device": ("cuda" if gpus else "cpu") if torch else None,
        "dtype": "the profile's (mini: float32; auto: the checkpoint's)",
        "attention": ATTENTION[path] if torch else None,
    }
    if torch and not gpus:
        plan["few_rows"] = _few_rows()
    nvidia = torch is not None and torch.version.cuda is not None
    if nvidia and path == "triton" and any(gpu["capability"] == HOPPER for gpu in gpus):
        plan["hopper_kernels"] = _compiler()
    return plan


def _attention(gpus: list[Findings]) -> str:
    """Return the key of ATTENTION that serves models on the first GPU, or "cpu" without one."""
    if not gpus:
        return "cpu"
    import torch

    from specx.kernels.ops import ops_for
    from specx.kernels.torch import flash_decoding

    if ops_for(torch.device("cuda")).name == "triton":
        return "triton"
    generation = int(gpus[0]["capability"].split(".")[0])
    usable = generation >= flash_decoding.AMPERE and flash_decoding.is_installed()
    return "flash-attn" if usable else "neither"


def _few_rows() -> str:
    """Return what computes a token or a tree on a CPU in float32."""
    if not installed_version("llvmlite"):
        return "torch; machine code is faster: pip install 'llvmlite>=0.45'"
    from specx.kernels.native.native_pass import loading

    return "machine code by llvmlite" if loading().wait() else "torch; llvmlite has no code here"


def _compiler() -> str:
    """Return the compiler of kernels in CUDA C++. Without one all works, slower."""
    from specx.kernels.hopper.compiler import version
    from specx.kernels.hopper.driver import CudaError

    try:
        major, minor = version()
    except CudaError as error:
        return f"none, slower without ({error})"
    return f"compiled at first use by NVRTC {major}.{minor}"


def _embedded_pair() -> bool:
    """Return True if the weights of target and draft are inside the package."""
    folder = Path(str(resources.files("specx"))) / "models" / "embedded"
    return all(any((folder / role).glob("*.safetensors")) for role in ("target", "draft"))


def _hub_cache() -> Path:
    """Return the folder of downloaded models, which the hub's own variables decide."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"])
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))  # noqa: PTH118
    home = os.environ.get("HF_HOME", os.path.join(cache, "huggingface"))  # noqa: PTH118
    return Path(os.path.expanduser(home)) / "hub"  # noqa: PTH111 - unlike Path's, it cannot fail


# ---------------------------------------------------------------- for people


def _lines(report: Findings) -> Iterator[str]:
    """Yield the report as text: a heading for each section, a line for each value."""
    for section, values in report.items():
        yield section.replace("_", " ")
        for name, value in values.items():
            yield f"  {name.replace('_gb', '').replace('_', ' '):<17} {_text(name, value)}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "absent" if name in (*PACKAGES, *OPTIONAL) else "unknown"
    if isinstance(value, list):
        gpus = (f"{gpu['name']} ({gpu['memory_gb']} GB)" for gpu in value)
        return ", ".join(gpus) or "none"
    return f"{value} GB" if name.endswith("_gb") else str(value)
