"""From scores of chunks to the chunks that are kept."""

import torch
from torch import Tensor

from specx.engine.draft_cache import DraftCache
from specx.kernels.chunks import best_chunks


def best_of_text(scores: Tensor, cache: DraftCache, top_k: int) -> Tensor:
    """The best chunks by ``scores`` [M], of those that the text in ``cache`` reaches, as
    ``best_chunks`` returns them."""
    length, grid = cache.store.length, cache.grid
    starts = torch.arange(len(scores), device=length.device) * grid.chunk
    known = scores.masked_fill(starts >= length, -torch.inf)
    return best_chunks(known, length, grid, top_k)
