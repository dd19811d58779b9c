"""Kernels of ours, compiled and loaded at first use, once for each device."""

from functools import cache
from pathlib import Path

import torch

from specx.ops.hopper.compiler import compiled
from specx.ops.hopper.driver import CudaError, Kernel, is_hopper, load


@cache
def kernel_of(
    source: Path, name: str, shared: int, device: torch.device, **constants: int
) -> Kernel | None:
    """Return the kernel ``name`` of a file on a CUDA device, or None where it cannot be had.

    ``constants`` are defined in front of the file; each block has ``shared`` bytes of dynamic
    shared memory. It cannot be had on another GPU than Hopper or without a compiler: everything
    that such a kernel does can be done another way.
    """
    if not is_hopper(device):
        return None
    try:
        binary = compiled(source, constants)
        with torch.cuda.device(device):
            return load(binary, name, shared)
    except CudaError:
        return None
