"""Moving cached keys to other positions.

Models cache keys after rotary embedding (RoPE). A rotation by (new − old) position turns a key
into the key of the new position, exactly, for every RoPE whose frequencies are fixed; a scale
that a variant such as YaRN multiplies into the key stays in it. Source: Su et al., RoFormer,
equation 15: rotations add.
"""

import torch
from torch import Tensor


def rotate(keys: Tensor, by: Tensor, inv_freq: Tensor) -> Tensor:
    """Rotate keys [..., rows, D] by ``by`` int64 [rows] positions.

    ``inv_freq`` [R/2]: the model's own frequencies in radians per position; the first R of D
    dimensions rotate, in the half-split layout of transformers. Angles are taken in float64:
    float32 angles are off by 1e-4 at 16K positions.
    """
    angle = by.to(torch.float64)[:, None] * inv_freq.to(torch.float64)  # [rows, R/2]
    wide = torch.promote_types(keys.dtype, torch.float32)  # half precision is rounded once, below
    cos, sin = angle.cos().to(wide), angle.sin().to(wide)
    half = inv_freq.shape[0]
    first, second, rest = keys[..., :half], keys[..., half : 2 * half], keys[..., 2 * half :]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.to(keys.dtype), rest], dim=-1)
