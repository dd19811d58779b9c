"""The cores and the memory that this process may use, what else runs, and Python's search for
garbage, which takes a tenth of the time of imports and of loading. Never imports torch.

A thread that waits for the others of its process spins at first, which is the fastest way while
every thread has a core of its own. Beside another busy process it takes the core from the thread
that everybody waits for. How threads wait is fixed when torch is imported, so ``choose_threads``
has to be asked before.
"""

import contextlib
import gc
import math
import os
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # of /proc/stat, a second
_SHORTEST_S = 0.05  # that others are watched
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
BUSY = 0.3  # of a core, taken by others: somebody works here


@dataclass(frozen=True)
class Threads:
    """The number of threads of an operation, how they wait, and the reasons.

    ``number``: None where torch decides (one for each physical core). ``spin``: waiting threads
    keep their core for a while. ``fixed``: the user has said how many, so it stays that many even
    where others need the cores.
    """

    number: int | None
    spin: bool
    reason: str
    fixed: bool = False

    def set(self, environment: MutableMapping[str, str]) -> None:
        """Set what OpenMP reads when torch is imported; how threads wait only if nobody has."""
        if self.number is not None:
            environment["OMP_NUM_THREADS"] = str(self.number)
        if not self.spin and not any(environment.get(name) for name in _WAITING):
            environment["OMP_WAIT_POLICY"] = "PASSIVE"


def choose_threads(
    requested: int | None, environment: Mapping[str, str], others: "LoadMonitor"
) -> Threads:
    """Choose for this process. ``requested``: the user's own number of threads.

    ``others``: watched since the start of the process, before it has had children.
    """
    cores, machine = usable_cores(), os.cpu_count() or 1
    fixed = bool(requested or environment.get("OMP_NUM_THREADS"))
    if requested:
        number, reason = requested, f"{requested} asked for"
    elif environment.get("OMP_NUM_THREADS"):
        number, reason = None, "the number that OMP_NUM_THREADS says"
    elif cores < machine:
        number, reason = cores, f"{cores} of {machine} cores may be used"
    else:
        number, reason = None, "one for each core"
    waits = next((name for name in _WAITING if environment.get(name)), None)
    if waits:
        return Threads(number, True, f"{reason}; {waits} says how they wait", fixed)
    if (number or 0) > cores:
        why = f"{reason}, more than the cores; they sleep while they wait"
        return Threads(number, False, why, fixed)
    busy = others.busy() or 0.0
    if busy + (number or cores) > cores + BUSY:
        why = f"{reason}; other processes are busy, so they sleep while they wait"
        return Threads(number, False, why, fixed)
    return Threads(number, True, f"{reason}; they spin while they wait", fixed)


def usable_cores(root: Path = ROOT) -> int:
    """Return the number of cores: those of the affinity mask, or fewer under a cgroup's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota - 0.01)))


def cgroup_quota(root: Path = ROOT) -> float | None:
    """Return the cores that cgroups grant (the tightest quota), or None without a quota.

    ``root``: where ``proc`` and ``sys`` lie. Both versions of the interface are read.
    """
    quotas = [quota for group in _cgroups(root) if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


class LoadMonitor:
    """Measures how many of the usable cores other processes keep busy."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._last = self._now()

    def busy(self) -> float | None:
        """Return the cores kept busy by others since the last call; None where nothing tells.

        Others of a lower priority run little beside threads that spin, and harm them all the same:
        so what they took counts, or, if that is more, how long this process's threads waited for a
        core. A call that comes too soon waits: the kernel counts in hundredths of a second.
        """
        rates = self._rates()
        if rates is None:
            return None
        others, waited, _ = rates
        return max(0.0, others, waited)

    def taken(self, threads: int) -> float | None:
        """Return the share of the time since the last call, 0 to 1, that others took from
        ``threads`` busy threads of this process; None where nothing tells.

        Others take nothing while they leave as many cores as the threads can use. What they took is
        counted twice over, and the larger number is returned: cores that both wanted, by the cores
        that the threads can use; and how long threads waited for a core, since the others of them
        wait for the one that waits. More threads than cores wait for each other, and threads above
        a quota for its next period, so their waiting tells nothing.
        """
        rates = self._rates()
        if rates is None:
            return None
        others, waited, cores = rates
        granted = cgroup_quota(self._root) or cores
        needed = min(threads, cores, granted)
        wanted = max(0.0, needed + others - cores) / needed
        return min(1.0, max(wanted, waited if threads <= needed else 0.0))

    def _rates(self) -> tuple[float, float, int] | None:
        """Return what was taken since the last call; one that comes too soon waits.

        The cores that were neither idle nor ours, the seconds a second that our threads waited for
        one, and the number of cores.
        """
        if self._last is not None:
            time.sleep(max(0.0, self._last.clock + _SHORTEST_S - time.perf_counter()))
        before, self._last = self._last, self._now()
        if before is None or self._last is None or self._last.clock == before.clock:
            return None
        if self._last.counted == before.counted:  # a sandbox whose /proc/stat stands still
            return None
        passed = self._last.clock - before.clock
        idle = (self._last.idle - before.idle) / passed
        own = (self._last.own - before.own) / passed
        waited = (self._last.waited - before.waited) / passed
        return self._last.cores - idle - own, waited, self._last.cores

    def _now(self) -> "_Sample | None":
        try:
            lines = (self._root / "proc/stat").read_text().splitlines()
            usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        except (OSError, AttributeError):
            return None
        rows = [fields for line in lines if (fields := line.split()) and fields[0] in usable]
        idle = (
            sum(int(row[4]) + int(row[5]) for row in rows) / _TICK
        )  # user nice system idle iowait
        clock, own = time.perf_counter(), time.process_time()
        counted = sum(int(ticks) for row in rows for ticks in row[1:])
        return _Sample(clock, own, self._waited(), idle, len(rows), counted) if rows else None

    def _waited(self) -> float:
        """Return the seconds that threads of this process could have run and had no core."""
        waited = 0
        try:
            for task in (self._root / "proc/self/task").iterdir():
                waited += int((task / "schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # a kernel without it, or a thread that ended
            pass
        return waited / 1e9


class _Sample(NamedTuple):
    clock: float  # seconds
    own: float  # seconds of a core that this process has had
    waited: float  # seconds that its threads waited for one
    idle: float  # seconds of the usable cores
    cores: int
    counted: int  # ticks of all kinds


# ---------------------------------------------------------------- reading /proc and /sys


def _cgroups(root: Path) -> list[Path]:
    """List the folders of this process's cgroups and of those around them: all limits hold."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            for name in (controllers, "cpu", "unified") if controllers else ("", "unified"):
                mount = root / "sys/fs/cgroup" / name
                group = mount / own.lstrip("/")
                around = (p for p in group.parents if p.is_relative_to(mount))
                found += [group, *around]
    return list(dict.fromkeys(found))


def _quota(group: Path) -> float | None:
    """Return the cores that one cgroup grants, None without a quota."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        granted = -1.0 if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return granted if granted > 0 else None


# ---------------------------------------------------------------- memory


def free_memory() -> int | None:
    """Return the bytes of main memory that can still be used; None when unknown."""
    known = [_meminfo_available(), *(cgroup_free(group) for group in _cgroups(ROOT))]
    return min((n for n in known if n is not None), default=None)


def cgroup_free(group: Path) -> int | None:
    """Return the bytes left below the memory limit of a cgroup (v2); None without a limit."""
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or used is None:
        return None
    # Cached file pages count as used, but the kernel gives them up when a process needs memory.
    cached = _field(group / "memory.stat", "inactive_file") or 0
    return max(0, limit - used + cached)


def _meminfo_available() -> int | None:
    kilobytes = _field(ROOT / "proc/meminfo", "MemAvailable:")
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


# ---------------------------------------------------------------- garbage


@contextlib.contextmanager
def without_collecting(*, kept: bool = False) -> Iterator[None]:
    """Look for no garbage inside the block: modules and models stay.

    Afterwards they count as old, and are searched seldom. ``kept``: never; a search of them takes a
    fifth of a second.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not kept:
            gc.unfreeze()
        gc.enable()
