"""Which chunks of the text the draft works on: pure functions, scores in, chunk ids out.

The text is cut into chunks of ``chunk`` tokens; the last one may be short. Ids come back
ascending, and the newest chunk is always among them, so the draft sees what was just written.
How long the text is only the device knows (``tokens``, int64 [1]), so there are always k ids:
where the text has fewer chunks, the last ids lie beyond it and stand for nothing.
"""

import torch
from torch import Tensor


def count_chunks(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk)


def best_chunks(scores: Tensor, tokens: Tensor, chunk: int, k: int) -> Tensor:
    """Cross-model retrieval: the k best chunks, the newest among them.

    ``scores`` [M]: of all chunks that there could be; −inf beyond the text.
    """
    newest = (tokens - 1) // chunk
    ids = torch.arange(len(scores), device=scores.device)
    best = scores.where(ids != newest, torch.inf).topk(min(k, len(scores)))
    return torch.where(best.values > -torch.inf, best.indices, len(scores)).sort().values


def streaming_chunks(tokens: Tensor, chunk: int, k: int, sink: int) -> Tensor:
    """StreamingLLM: the first ``sink`` chunks of the text and the most recent k − sink."""
    place = torch.arange(k, device=tokens.device)
    behind = (tokens - 1) // chunk + 1 - k  # chunks that are left out
    return torch.where(place < min(sink, k - 1), place, place + behind.clamp(min=0))


def chunk_rows(ids: Tensor, chunk: int) -> Tensor:
    """Token rows of the chosen chunks, ascending: ids int64 [k] -> int64 [k · chunk].

    Only the last chunk of the text can be short: rows beyond the text come last.
    """
    return (ids[:, None] * chunk + torch.arange(chunk, device=ids.device)).flatten()
