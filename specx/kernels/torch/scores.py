"""What one token of the target attended to: the scores by which chunks are retrieved."""

import torch
from torch import Tensor

from specx.kernels import fused


def attention_row(query: Tensor, keys: Tensor, scaling: float, lse: Tensor) -> Tensor:
    """Softmax attention of one query over a prefix, for each head: ``exp(q·K − lse)``.

    query [Hq, D]; keys [Hkv, L, D]; lse [Hq], natural logarithm, from the forward pass. Returns
    float32 (or wider) [Hq, L]. Costs one row of one layer, whichever layer it is.
    """
    return (scaled_scores(query, keys, scaling) - lse[:, None]).exp()


def scaled_scores(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """query [Hq, D], keys [Hkv, L, D] -> float32 (or wider) [Hq, L]."""
    packed = query.reshape(keys.shape[0], -1, query.shape[-1])  # [Hkv, G, D]
    wide = torch.promote_types(query.dtype, torch.float32)
    return (packed.to(wide) @ keys.to(wide).transpose(-1, -2)).flatten(0, 1) * scaling


def chunk_scores(
    query: Tensor,
    lse: Tensor,
    keys: Tensor,
    length: Tensor,
    scaling: float,
    chunk: int,
    short: int = 0,
) -> Tensor:
    """How much attention each chunk of the text gets: mean over its tokens and over heads.

    query [Hq, D]; lse [Hq]; keys [Hkv, capacity, D], of which the first ``length`` (int64 [1])
    rows are text. Returns float32 (or wider) [ceil((capacity + short) / chunk)], −inf beyond the
    text. The first chunk is ``short`` rows short, and the last of the text may be short as well
    (SpecExtend, cross-model retrieval).
    """
    if fused.serves(keys):
        return fused.chunk_scores(query, lse, keys, length, scaling, chunk, short)
    tokens, chunks = int(length), -(-(keys.shape[1] + short) // chunk)
    row = attention_row(query, keys[:, :tokens], scaling, lse).mean(0)
    behind = -(short + tokens) % chunk
    sums = torch.nn.functional.pad(row, (short, behind)).view(-1, chunk).sum(-1)
    sizes = torch.full_like(sums, chunk)
    sizes[0] -= short
    sizes[-1] -= behind
    means = sums / sizes
    return torch.nn.functional.pad(means, (0, chunks - len(means)), value=-torch.inf)
