"""Attention of one token of the target: the scores by which chunks are retrieved."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from specx.ops.chunks import Grid


def attention_row(
    query: Tensor, keys: Tensor, scaling: float, lse: Tensor, softcap: float | None = None
) -> Tensor:
    """Return the softmax attention of one query over a prefix, for each head: ``exp(q·K − lse)``.

    query [Hq, D]; keys [Hkv, L, D]; lse [Hq], natural logarithm, from the forward pass. Returns
    float32 (or wider) [Hq, L]. Costs one row of one layer, whichever layer it is.
    """
    scores = scaled_scores(query, keys, scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return (scores - lse[:, None]).exp()


def scaled_scores(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Return the scores of query [Hq, D] over keys [Hkv, L, D]: float32 (or wider) [Hq, L]."""
    packed = query.reshape(keys.shape[0], -1, query.shape[-1])  # [Hkv, G, D]
    wide = torch.promote_types(query.dtype, torch.float32)
    return (packed.to(wide) @ keys.to(wide).transpose(-1, -2)).flatten(0, 1) * scaling


def chunk_scores(
    query: Tensor, lse: Tensor, keys: Tensor, length: Tensor, scaling: float, grid: Grid,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Compute ``Ops.chunk_scores``."""
    chunk, short, tokens = grid.chunk, grid.short, int(length)
    chunks = -(-(keys.shape[1] + short) // chunk)
    row = attention_row(query, keys[:, :tokens], scaling, lse, softcap).mean(0)
    behind = -(short + tokens) % chunk
    sums = pad(row, (short, behind)).view(-1, chunk).sum(-1)
    sizes = torch.full_like(sums, chunk)
    sizes[0] -= short
    sizes[-1] -= behind
    means = sums / sizes
    return pad(means, (0, chunks - len(means)), value=-torch.inf)


def best_chunks(scores: Tensor, tokens: Tensor, grid: Grid, k: int) -> Tensor:
    """Compute ``Ops.best_chunks``."""
    ids = torch.arange(len(scores), device=scores.device)
    if grid.kept is not None:  # behind the newest, should there be room for one only
        scores = scores.where(ids != grid.kept, torch.finfo(scores.dtype).max)
    best = scores.where(ids != grid.newest(tokens), torch.inf).topk(min(k, len(scores)))
    return torch.where(best.values > -torch.inf, best.indices, len(scores)).sort().values
