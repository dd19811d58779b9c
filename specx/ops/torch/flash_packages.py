"""Attention by an installed package: flash-attn or fa3-fwd.

Both attend to a prompt of any length in one launch, with the causal mask aligned at the last key.
flash-attn also attends to the prefix of a tree. The tree's own rows, and unsupported cases, use the
device's backend. A package is first tried on a few rows. It may lack kernels for a head size or a
GPU, and its import does not show that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from specx.ops.ancestors import AncestorMask
from specx.ops.layers import DecoderWeights
from specx.ops.torch.softmax import attend_dense

TRIED_ROWS, TRIED_KEYS, TRIED_ERROR = 16, 80, 0.05


class UnusableError(Exception):
    """A package that cannot be used here; the message gives the reason in a few words."""


# Attends with a package, in its layout: q [1, T, Hq, D]; k, v [1, S, Hkv, D] -> (out [1, T, Hq, D],
# lse [1, Hq, T] or None). Keywords: ``scaling``; ``causal``, aligned at the last key; ``window``;
# ``used`` int32 [1]: how many keys there are, None for all.
Attend = Callable[..., tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class FlashPackage:
    """An installed package of ``PACKAGES``.

    ``windows``: it supports sliding windows; ``verifies``: it can attend to the prefix of a tree.
    """

    name: str
    attend: Attend
    windows: bool = True
    verifies: bool = True

    def prefill(
        self, q: Tensor, keys: Tensor, values: Tensor, window: int | None, scaling: float
    ) -> Tensor:
        """Attend causally: q [Hq, T, D]; keys, values [Hkv, past + T, D] -> [T, Hq, D]."""
        rows = (each.transpose(0, 1)[None] for each in (q, keys, values))
        return self.attend(*rows, scaling=scaling, causal=True, window=window)[0][0]

    def prefix(
        self, q: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, scaling: float
    ) -> tuple[Tensor, Tensor]:
        """Attend to the first ``prefix`` (int64 [1], on the device) rows of a layer's storage.

        q [Hq, T, D]; keys, values [Hkv, capacity, D] -> (out [1, Hq, T, D], lse [1, Hq, T]).
        """
        heads, rows, dim = q.shape
        packed = q.reshape(len(keys), -1, dim)  # queries of a group share the reading of their keys
        layout = (each.transpose(0, 1)[None] for each in (packed, keys, values))
        out, lse = self.attend(*layout, scaling=scaling, causal=False, used=prefix.int())
        assert lse is not None
        lse = lse.reshape(1, heads, rows).masked_fill(prefix == 0, -torch.inf)
        return out.transpose(1, 2).reshape(1, heads, rows, dim), lse


def _with_kvcache(function: Callable[..., Any]) -> Attend:
    """Adapt ``flash_attn_with_kvcache``, which is the same in flash-attn 2.8 and 3."""

    def attend(
        q: Tensor, k: Tensor, v: Tensor, *, scaling: float, causal: bool,
        window: int | None = None, used: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        out, lse, *_ = function(
            q, k, v, cache_seqlens=used, softmax_scale=scaling, causal=causal,
            window_size=(-1, -1) if window is None else (window - 1, 0), return_softmax_lse=True,
        )  # fmt: skip
        return out, lse

    return attend


def _flash_attn(name: str) -> FlashPackage:
    return FlashPackage(name, _with_kvcache(_imported(name, "flash_attn")))


def _fa3_fwd(name: str) -> FlashPackage:
    function = _imported(name, "fa3_fwd_interface")
    # Its wheel is built without windows. What lies behind the keys that are used, it multiplies by
    # zero; of a KV cache that may be no number.
    return FlashPackage(name, _with_kvcache(function), windows=False, verifies=False)


# How each is imported, and the first generation of GPUs that it is for.
PACKAGES: dict[str, tuple[Callable[[str], FlashPackage], int]] = {
    "flash-attn": (_flash_attn, 8),
    "fa3-fwd": (_fa3_fwd, 9),
}


def is_installed(name: str) -> bool:
    """Return True if a package of that name is installed, usable or not. Imports nothing."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


@cache
def load(name: str, device: torch.device, dtype: torch.dtype, head_dim: int) -> FlashPackage:
    """Import a package and try it on a few rows with heads of ``head_dim``.

    Raises UnusableError if it is not installed, cannot be imported, lacks the functions, has no
    kernels for this GPU, number format or head size, or computes wrong results.
    """
    _, generation = PACKAGES[name]
    if device.type != "cuda":
        raise UnusableError("it needs an NVIDIA GPU")
    if dtype not in (torch.float16, torch.bfloat16):
        raise UnusableError("it computes in float16 and bfloat16 only")
    if torch.cuda.get_device_capability(device)[0] < generation:
        raise UnusableError(f"it needs a GPU of compute capability {generation}.0 or newer")
    return open_package(name, device, dtype, head_dim)


def open_package(
    name: str, device: torch.device, dtype: torch.dtype, head_dim: int
) -> FlashPackage:
    """Import a package and try it, on any device. Raises UnusableError as ``load`` does."""
    import_package, _ = PACKAGES[name]
    package = import_package(name)
    try:
        error = _tried(package, device, dtype, head_dim)
    except Exception as problem:  # signatures, kernels and compilers: no common class
        raise UnusableError(f"it fails when it is called ({_line(problem)})") from problem
    if not error < TRIED_ERROR:
        raise UnusableError(f"its results are wrong, by {error:.2g} for values around 1")
    return package


def _imported(name: str, module: str) -> Callable[..., Any]:
    """Import the function of a package. Raises UnusableError."""
    try:
        return import_module(module).flash_attn_with_kvcache
    except Exception as problem:  # a library that was built for another torch raises what it likes
        if not is_installed(name):
            raise UnusableError("it is not installed") from problem
        raise UnusableError(f"it cannot be imported ({_line(problem)})") from problem


@torch.inference_mode()
def _tried(package: FlashPackage, device: torch.device, dtype: torch.dtype, dim: int) -> float:
    """Return the largest difference between a package's results and explicit float32 attention."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(heads: int, rows: int) -> Tensor:
        return torch.randn(heads, rows, dim, generator=generator, device=device).to(dtype)

    q, keys, values = draw(4, TRIED_ROWS), draw(2, TRIED_KEYS), draw(2, TRIED_KEYS)
    wide_keys, wide_values = (x.repeat_interleave(2, 0)[None].float() for x in (keys, values))
    past, scaling = TRIED_KEYS - TRIED_ROWS, dim**-0.5
    seen = torch.ones(TRIED_ROWS, TRIED_KEYS, dtype=torch.bool, device=device).tril(past)
    expected, _ = attend_dense(q[None].float(), wide_keys, wide_values, scaling, seen)
    out = package.prefill(q, keys, values, None, scaling)
    errors = [out.transpose(0, 1)[None] - expected]
    if package.verifies:
        prefix = torch.tensor([past], device=device)
        found = package.prefix(q, keys, values, prefix, scaling)
        wide_keys, wide_values = wide_keys[:, :, :past], wide_values[:, :, :past]
        expected_parts = attend_dense(q[None].float(), wide_keys, wide_values, scaling, None)
        errors += [a - b for a, b in zip(found, expected_parts, strict=True)]
    return max(float(error.abs().max()) for error in errors)


def _line(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class FlashOps:
    """The ``Ops`` of a device, ``inner``, with a package's attention for the cases it supports.

    ``attention``: the setting that selected it.
    """

    def __init__(self, inner: Any, package: FlashPackage, attention: str) -> None:
        self._inner, self.package, self.attention_by = inner, package, attention

    def is_row_invariant(self, weights: DecoderWeights) -> bool:
        """Return False if the package attends to trees, else what the inner ``Ops`` returns."""
        return not self.package.verifies and self._inner.is_row_invariant(weights)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # every other operation

    def prefill_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, past: int, window: int | None,
        scaling: float, **special: Any,
    ) -> Tensor:  # fmt: skip
        """Attend with the package, or with the device's backend if a ``special`` keyword is set."""
        is_ring = past + q.shape[1] > keys.shape[1]
        if _is_any(special) or is_ring or (window is not None and not self.package.windows):
            return self._inner.prefill_attention(q, keys, values, past, window, scaling, **special)
        first = 0 if window is None else max(0, past - window + 1)  # nobody sees what is before
        rows = slice(first, past + q.shape[1])
        return self.package.prefill(q, keys[:, rows], values[:, rows], window, scaling)

    def tree_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, mask: AncestorMask,
        scaling: float, *, needs_lse: bool = True, **special: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Attend with the package, or with the device's backend if a ``special`` keyword is set."""
        inner = self._inner
        if not self.package.verifies or _is_any(special) or keys.dtype == torch.int8:
            return inner.tree_attention(
                q, keys, values, prefix, mask, scaling, needs_lse=needs_lse, **special
            )
        seen = self.package.prefix(q, keys, values, prefix, scaling)
        own = prefix + torch.arange(mask.rows, device=q.device)
        tree = (each.index_select(1, own) for each in (keys, values))
        out, lse = inner.tree_attention(q, *tree, torch.zeros_like(prefix), mask, scaling)
        merged, total = inner.merge_attention(*seen, out.transpose(0, 1)[None], lse[None])
        return merged[0].transpose(0, 1), total[0]


def _is_any(special: dict[str, Any]) -> bool:
    return any(value is not None for value in special.values())
