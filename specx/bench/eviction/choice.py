"""From scores of chunks to the chunks that are kept."""

import torch
from torch import Tensor

from specx.caches.policies import best_chunks
from specx.profile import DraftCacheSettings


def best_of_text(scores: Tensor, length: Tensor, settings: DraftCacheSettings) -> Tensor:
    """The best chunks by ``scores`` [M], of those that the text of ``length`` (int64 [1]) tokens
    reaches, as ``best_chunks`` returns them."""
    starts = torch.arange(len(scores), device=length.device) * settings.chunk
    known = scores.masked_fill(starts >= length, -torch.inf)
    return best_chunks(known, length, settings.chunk, settings.top_k)
