"""RoPE written out in float64, and the shapes of small caches."""

import torch
from torch import Tensor

from specx.decoding.kv_cache import CacheShape
from specx.decoding.layer_state import CacheGroup
from specx.ops.contract import Ops
from specx.ops.torch.backend import TorchOps

INV_FREQ = 10_000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)  # head dim 16


def shape_of(ops: Ops | None = None, layers: int = 2) -> CacheShape:
    group = CacheGroup(layers=layers, kv_heads=2, head_dim=16)
    return of_one(group, torch.float64, torch.device("cpu"), ops or TorchOps())


def of_one(group: CacheGroup, dtype: torch.dtype, device: torch.device, ops: Ops) -> CacheShape:
    """The shape of a cache whose layers are all alike."""
    places = tuple((0, layer) for layer in range(group.layers))
    return CacheShape(groups=(group,), places=places, dtype=dtype, device=device, ops=ops)


def normal(*sizes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def rope(keys: Tensor, positions: Tensor, inv_freq: Tensor = INV_FREQ) -> Tensor:
    """Keys [..., rows, D] as a model rotates them: element i with element i + R/2, as complex
    numbers, whose angle is the position times the frequency."""
    half = len(inv_freq)
    pairs = torch.complex(keys[..., :half], keys[..., half : 2 * half])
    turned = pairs * torch.polar(
        torch.ones(len(positions), half, dtype=torch.float64), positions[:, None] * inv_freq
    )
    return torch.cat([turned.real, turned.imag, keys[..., 2 * half :]], dim=-1)
