"""A device's peak memory bandwidth and peak rate of matrix products."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ceilings:
    """The measured peak performance of a device.

    ``bandwidth``: bytes/s of a copy, reads and writes together; on a CPU, of reading. ``matmul``:
    flop/s in bf16; on a CPU, in float32. On a CPU also ``call``: seconds of overhead of an
    operation from Python, and ``threads``: seconds of overhead of using all threads in an
    operation. On a GPU also ``link``: bytes/s copied to it from locked main memory.
    """

    bandwidth: float
    matmul: float
    call: float = 0.0
    threads: float = 0.0
    link: float = 0.0


def measure_ceilings(device: torch.device) -> Ceilings:
    """Measure a device's peak performance; this takes seconds, and some GB of its memory."""
    return _of_gpu(device) if device.type == "cuda" else _of_cpu()


def _of_cpu() -> Ceilings:
    """Time reading 512 MB, a product of two 2048 x 2048 matrices, and small operations.

    A small operation with all threads is compared with one thread on its share of the data.
    """
    read = reader()
    bandwidth = statistics.median([read() for _ in range(8)][3:])
    a, b = (torch.randn(2048, 2048) for _ in range(2))
    product = _median_of_cpu(lambda: a @ b, 5)
    one, threads = torch.ones(1), torch.get_num_threads()
    share = torch.ones(_SHARED)
    shares = torch.ones(threads * _SHARED)
    call = _median_of_cpu(lambda: one.add_(1), 1000)
    together = _median_of_cpu(lambda: shares.add_(1), 1000)
    torch.set_num_threads(1)
    try:
        alone = _median_of_cpu(lambda: share.add_(1), 1000)
    finally:
        torch.set_num_threads(threads)
    return Ceilings(bandwidth, 2 * 2048**3 / product, call, max(0.0, together - alone))


def reader() -> Callable[[], float]:
    """Return a function that measures a CPU's read bandwidth on 512 MB, in bytes/s."""
    large = torch.ones(2**27)

    def read() -> float:
        begin = time.perf_counter()
        large.sum()
        return large.nbytes / (time.perf_counter() - begin)

    return read


_SHARED = 2**16  # numbers for each thread: more than torch leaves to a single one


def _median_of_cpu(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def _of_gpu(device: torch.device) -> Ceilings:
    """Time copies of 4 GB, and of 256 MB to the device, and a product of two matrices."""
    source = torch.empty(2**31, dtype=torch.bfloat16, device=device).normal_()
    target = torch.empty_like(source)
    copy = _median_seconds(lambda: target.copy_(source))
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = _median_seconds(lambda: a @ b)
    host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    part = target.view(torch.uint8)[: len(host)]
    link = len(host) / _median_seconds(lambda: part.copy_(host, non_blocking=True))
    return Ceilings(2 * 2**32 / copy, 2 * 8192**3 / product, link=link)


def _median_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(13):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times[3:])
