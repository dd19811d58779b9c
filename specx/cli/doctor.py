"""``specx doctor``: what this machine has, and which path specx will take on it."""

import json
import os
import platform
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from specx import __version__
from specx.profile import shipped_folder, user_folder

Report = dict[str, Any]  # sections and values, ready for JSON

PACKAGES = ("torch", "transformers", "triton", "flash-attn", "pypdf")
GB = 10**9


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what this machine has and what specx will use. Nothing that is missing is an error."""
    report = examine()
    typer.echo(json.dumps(report, indent=2) if as_json else "\n".join(_lines(report)))


def examine() -> Report:
    """Everything ``specx doctor`` says; None stands for what is absent or cannot be found out."""
    torch = _torch()
    gpus = _gpus(torch)
    return {
        "versions": _versions(),
        "machine": {
            "platform": platform.platform(),
            "cpu_cores": _cores(),
            "torch_threads": torch.get_num_threads() if torch else None,
            "memory_gb": _memory(),
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
        },
    }


# ---------------------------------------------------------------- findings


def _torch() -> ModuleType | None:
    """torch, or None where it is absent or broken: then this command matters most."""
    try:
        import torch
    except Exception:  # a broken CUDA installation raises more than ImportError
        return None
    return torch


def _versions() -> dict[str, str | None]:
    found = {"python": platform.python_version(), "specx": __version__}
    return found | {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int | None:
    """Cores this process may use, which in a container is less than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory() -> float | None:
    """Physical memory in GB, or the container's limit where that is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
    return round(min(total, _container_limit() or total) / GB, 1)


def _container_limit() -> int | None:
    """The memory limit of the control group in bytes (version 2, then 1), or None."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            return int(Path("/sys/fs/cgroup", name).read_text())
        except (OSError, ValueError):  # absent, or the word "max"
            continue
    return None


def _gpus(torch: ModuleType | None) -> list[Report]:
    """Name, memory in GB and compute capability of every CUDA device."""
    if torch is None:
        return []
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [_gpu(torch.cuda.get_device_properties(index)) for index in range(count)]
    except Exception:  # a driver that does not fit: as good as no GPU
        return []


def _gpu(properties: Any) -> Report:
    return {
        "name": properties.name,
        "memory_gb": round(properties.total_memory / GB, 1),
        "capability": f"{properties.major}.{properties.minor}",
    }


def _plan(torch: ModuleType | None, gpus: list[Report]) -> Report:
    """Device, number format and attention path."""
    flash = "absent" if _version("flash-attn") is None else "present"
    attention = "torch eager" if gpus else "torch, packed rows"
    return {
        "device": ("cuda" if gpus else "cpu") if torch else None,
        "dtype": "the profile's (mini: float32; auto: the checkpoint's)",
        "attention": attention if torch else None,
        "flash_attn": f"{flash}, not used by this version",
    }


def _embedded_pair() -> bool:
    """Whether the weights of target and draft are inside the package."""
    folder = Path(str(resources.files("specx"))) / "models" / "embedded"
    return all(any((folder / role).glob("*.safetensors")) for role in ("target", "draft"))


def _hub_cache() -> Path:
    """Where downloaded models are kept; the hub's own variables decide."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"])
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))  # noqa: PTH118
    home = os.environ.get("HF_HOME", os.path.join(cache, "huggingface"))  # noqa: PTH118
    return Path(os.path.expanduser(home)) / "hub"  # noqa: PTH111 - unlike Path's, it cannot fail


# ---------------------------------------------------------------- for people


def _lines(report: Report) -> Iterator[str]:
    """The report as indented text: a heading for each section, a line for each value."""
    for section, values in report.items():
        yield section.replace("_", " ")
        for name, value in values.items():
            yield f"  {name.replace('_gb', '').replace('_', ' '):<17} {_text(name, value)}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "absent" if name in PACKAGES else "unknown"
    if isinstance(value, list):
        gpus = (f"{gpu['name']} ({gpu['memory_gb']} GB)" for gpu in value)
        return ", ".join(gpus) or "none"
    return f"{value} GB" if name.endswith("_gb") else str(value)
