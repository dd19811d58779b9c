"""The memory that is free, asked before a model is loaded."""

from pathlib import Path

import torch

from specx.errors import OutOfMemoryError

_CGROUP = Path("/sys/fs/cgroup")
_GB = 10**9


def check_memory(needed: int, device: torch.device, label: str) -> None:
    """Compare bytes needed with bytes free on the device.

    Raises specx's OutOfMemoryError with both numbers. A machine that does not tell is trusted.
    """
    free = free_bytes(device)
    if free is not None and needed > free:
        where = "on the GPU" if device.type == "cuda" else "in main memory"
        raise OutOfMemoryError(
            f"{label} needs {needed / _GB:.1f} GB {where} and {free / _GB:.1f} GB are free: too "
            "little memory; choose a smaller model or a smaller dtype, or free some."
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that can still be used on a device; None when unknown.

    Main memory is what the kernel calls available, or less inside a cgroup with a limit.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    known = [_meminfo_available(), *(cgroup_free(group) for group in _own_cgroups())]
    return min((n for n in known if n is not None), default=None)


def cgroup_free(group: Path) -> int | None:
    """Return the bytes left below the memory limit of a cgroup (v2); None without a limit."""
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or used is None:
        return None
    # Cached file pages count as used, but the kernel gives them up when a process needs memory.
    cached = _field(group / "memory.stat", "inactive_file") or 0
    return max(0, limit - used + cached)


def _own_cgroups() -> list[Path]:
    """List this process's cgroup and those around it: the tightest limit counts."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    group = _CGROUP / own
    return [group, *(parent for parent in group.parents if parent.is_relative_to(_CGROUP))]


def _meminfo_available() -> int | None:
    kilobytes = _field(Path("/proc/meminfo"), "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _number(file: Path) -> int | None:
    """Return the file's only number; None when it is missing or says "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _field(file: Path, key: str) -> int | None:
    """Return the number after ``key`` at the beginning of a line."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines)
    return next((int(line[1]) for line in words if len(line) > 1 and line[0] == key), None)
