"""Attention over a long prefix by the package ``flash-attn``, where it is installed and Triton is
not.

torch's own flash kernels divide queries among programs, and each reads all keys; with as few
queries as a tree has, most of a GPU stands idle. ``flash_attn_with_kvcache`` divides the keys, too
(flash decoding). The package is built from source, for hours, and could not be where specx is
tested: it was never run there. Tested is how it is called, with a stand-in that does what its
documentation says; ``specx doctor`` calls it untested.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

AMPERE = 8  # the first generation of GPUs that it supports
MOST_DIM = 256


def serves(q: Tensor) -> bool:
    """Return True if it can be used for queries [1, H, T, D]."""
    return (
        q.is_cuda
        and q.dtype in (torch.float16, torch.bfloat16)
        and q.shape[-1] % 8 == 0
        and q.shape[-1] <= MOST_DIM
        and torch.cuda.get_device_capability(q.device)[0] >= AMPERE
        and is_installed()
    )


def attend(q: Tensor, k: Tensor, v: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """Attend from ``q`` to all of ``k``, for queries that it ``serves``.

    q [1, H, T, D]; k, v [1, H, S, D], last dimensions contiguous -> (out [1, H, T, D], lse
    [1, H, T] float32, natural logarithm).
    """
    kernel = _kernel()
    assert kernel is not None
    out, lse = kernel(
        *(each.transpose(1, 2) for each in (q, k, v)),
        softmax_scale=scaling,
        causal=False,
        return_softmax_lse=True,
    )
    return out.transpose(1, 2), lse


@cache
def _kernel() -> Callable[..., Any] | None:
    """Return its function, or None.

    None without such a package, with an older one that keeps the log-sum-exp to itself, one that
    only has the name (version 4), or one that was built for another torch.
    """
    try:
        from flash_attn import flash_attn_with_kvcache
    except Exception:  # a library that does not fit raises more than ImportError
        return None
    found: Callable[..., Any] = flash_attn_with_kvcache
    return found if "return_softmax_lse" in inspect.signature(found).parameters else None


def is_installed() -> bool:
    """Return True if there is a package that can be used."""
    return _kernel() is not None
