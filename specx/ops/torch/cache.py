"""Moving rows of KV caches in plain torch."""

import torch
from torch import Tensor

from specx.ops.byte_rows import narrowed
from specx.ops.chunks import Grid, chunk_rows


def store_rows(keys: Tensor, values: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """Compute ``Ops.store_rows``."""
    if keys.dtype == torch.int8:
        key, value = narrowed(key), narrowed(value)
    keys.index_copy_(1, slots, key.to(keys.dtype))
    values.index_copy_(1, slots, value.to(values.dtype))


def keep_rows(storage: Tensor, length: Tensor, path: Tensor) -> None:
    """Compute ``Ops.keep_rows``. The gather makes a copy, so the rows may overlap."""
    capacity, to = storage.shape[3], torch.arange(len(path), device=path.device)
    rows = storage.index_select(3, (path + length).remainder_(capacity))
    storage.index_copy_(3, (length + to).remainder_(capacity), rows)


def append_rows(
    source: Tensor, target: Tensor, lengths: tuple[Tensor, Tensor], positions: Tensor, count: int
) -> None:
    """Compute ``Ops.append_rows``."""
    rows = torch.arange(count, device=source.device)
    first, to = lengths[0] + rows, lengths[1] + rows
    target.index_copy_(3, to, source.index_select(3, first))
    positions.index_copy_(0, to, first)


def gather_chunks(
    store: Tensor,
    working: Tensor,
    chunks: Tensor,
    positions: Tensor,
    inv_freq: Tensor,
    lengths: tuple[Tensor, Tensor],
    grid: Grid,
) -> None:
    """Compute ``Ops.gather_chunks``."""
    length, filled = lengths
    rows = chunk_rows(chunks, grid)
    known = rows < length  # the others are padding
    rows = rows.clamp(max=store.shape[3] - 1)
    count = len(rows)
    picked = store.index_select(3, rows)
    shift = torch.arange(count, device=rows.device) - positions[rows]
    working[:, 0, :, :count] = rotate(picked[:, 0], shift, inv_freq)
    working[:, 1, :, :count] = picked[:, 1]
    filled.copy_(known.sum())


def rotate(keys: Tensor, by: Tensor, inv_freq: Tensor) -> Tensor:
    """Move cached keys [..., rows, D] by ``by`` int64 [rows] positions.

    Models cache keys after rotary embedding (RoPE). A rotation by (new − old) positions turns a key
    into the key of the new position, exactly, for every RoPE with fixed frequencies. A factor that
    a variant such as YaRN multiplies into the key is unaffected. Source: Su et al., RoFormer,
    equation 15: rotations add.

    ``inv_freq`` [R/2]: the model's own frequencies in radians per position; the first R of D
    dimensions rotate, in the half-split layout of transformers. Angles are computed in float64:
    float32 angles have errors of 1e-4 at 16K positions.
    """
    angle = by.to(torch.float64)[:, None] * inv_freq.to(torch.float64)  # [rows, R/2]
    wide = torch.promote_types(keys.dtype, torch.float32)  # half precision is rounded once, below
    cos, sin = angle.cos().to(wide), angle.sin().to(wide)
    half = inv_freq.shape[0]
    first, second, rest = keys[..., :half], keys[..., half : 2 * half], keys[..., 2 * half :]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.to(keys.dtype), rest], dim=-1)
