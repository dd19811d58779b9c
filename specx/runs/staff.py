"""The choice of workers: how many, where, and with which cores or GPU each."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from specx.cores import Threads, free_memory, usable_cores
from specx.errors import UsageError

RAY = "ray"  # in place of a number: as many as Ray has room for
FEWEST_DOCUMENTS = 4  # for several workers on a CPU: each has to load the models
_READER_BYTES = 1536 * 2**20  # that a process which reads a document may take


@dataclass(frozen=True, kw_only=True)
class Staff:
    """The workers of a run. ``number``: 0 if this process summarizes by itself.

    ``gpus``: the names of GPUs, as CUDA_VISIBLE_DEVICES has them, given out in turn. ``threads``:
    of each worker on a CPU. ``waiting``: documents that may wait at each. ``reading``: documents
    that are read at a time, ahead of the workers. ``prepares``: each worker has a process beside
    it that makes the prompts of documents that wait.
    """

    number: int
    gpus: tuple[str, ...] = ()
    threads: int = 1
    waiting: int = 0
    reading: int = 0
    prepares: bool = False

    def environment(self, place: int) -> dict[str, str]:
        """Return the variables of the worker at a place."""
        if self.gpus:
            return {"CUDA_VISIBLE_DEVICES": self.gpus[place % len(self.gpus)]}
        return {"OMP_NUM_THREADS": str(self.threads)}


def parse_workers(text: str | None) -> int | None:
    """Return the number of workers that the user asks for; None where he does not say one."""
    if text is None or text in ("auto", RAY):
        return None
    if text.isascii() and text.isdigit() and 0 < int(text) < 10**4:
        return int(text)
    raise UsageError(f"--workers {text} is neither a number of processes nor auto nor ray")


def choose_staff(
    asked: int | None, documents: int, device: str, threads: Threads, *, asked_threads: int | None
) -> Staff:
    """Choose for a run. ``asked``: the user's number of workers; ``documents``: at least so many.

    A GPU has one worker. This process reads and writes beside it, and where there are cores for it
    another one prepares its prompts. On a CPU there is a worker for each core, with one thread, if
    there are documents enough; but only where neither the number of workers nor that of threads is
    the user's.
    """
    cores = usable_cores()
    gpus = visible_gpus(os.environ) if device != "cpu" else ()
    if documents < 2 and asked is None:
        return Staff(number=0)
    if gpus:
        number = asked or min(len(gpus), documents)
        reading = _reading(min(cores, number + 1))
        prepares = documents > number and cores > 2 * number  # a core for each, and for this one
        return Staff(number=number, gpus=gpus, waiting=1, reading=reading, prepares=prepares)
    if asked is None and (threads.fixed or documents < FEWEST_DOCUMENTS or cores < 2):
        return Staff(number=0, reading=_reading(min(1, cores - 1)))
    number = min(asked or cores, documents)
    each = asked_threads or max(1, cores // number)
    return Staff(number=number, threads=each, reading=_reading(max(1, min(number, cores))))


def staff_of_ray(number: int) -> Staff:
    """Return so many workers, which this process reads for."""
    return Staff(number=number, waiting=1, reading=_reading(min(usable_cores(), number + 1)))


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that CUDA would use, as CUDA_VISIBLE_DEVICES names them. Imports no torch."""
    try:
        if version("torch").endswith("+cpu"):
            return ()
        cuda = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return ()
    except (OSError, AttributeError, PackageNotFoundError):
        return ()
    named = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [name.strip() for name in named if name.strip()] or list(map(str, range(count.value)))
    return tuple(names[: count.value])


def _reading(wanted: int) -> int:
    """Return how many documents may be read at a time: half of the free memory is theirs."""
    free = free_memory()
    return wanted if free is None else max(min(1, wanted), min(wanted, free // (2 * _READER_BYTES)))
