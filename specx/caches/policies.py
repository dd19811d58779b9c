"""Which chunks of the text the draft works on: pure functions, scores in, chunk ids out.

The text is cut into chunks of ``chunk`` tokens; the last one may be short. Ids come back
ascending, and the newest chunk is always among them, so the draft sees what was just written.
"""

import torch
from torch import Tensor


def count_chunks(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk)


def chunk_scores(row: Tensor, chunk: int) -> Tensor:
    """Mean score of each chunk's tokens: row [L] -> [count_chunks(L, chunk)]."""
    padding = -len(row) % chunk
    sums = torch.nn.functional.pad(row, (0, padding)).view(-1, chunk).sum(-1)
    sizes = torch.full_like(sums, chunk)
    sizes[-1] -= padding
    return sums / sizes


def best_chunks(scores: Tensor, k: int) -> Tensor:
    """Cross-model retrieval: the k best chunks by score [n], the newest among them."""
    if len(scores) <= k:
        return torch.arange(len(scores), device=scores.device)
    scores = scores.clone()
    scores[-1] = torch.inf
    return scores.topk(k).indices.sort().values


def streaming_chunks(chunks: int, k: int, sink: int, device: torch.device) -> Tensor:
    """StreamingLLM: the first ``sink`` chunks of the text and the most recent k − sink."""
    if chunks <= k:
        return torch.arange(chunks, device=device)
    sink = min(sink, k - 1)
    return torch.cat(
        [
            torch.arange(sink, device=device),
            torch.arange(chunks - (k - sink), chunks, device=device),
        ]
    )


def chunk_rows(ids: Tensor, chunk: int, tokens: int) -> Tensor:
    """Token rows of the chosen chunks, ascending: ids int64 [k] -> int64 [rows].

    Only the last chunk of the text can be short, and it is the last of ``ids``: the result is cut
    there, without looking at the ids themselves.
    """
    rows = (ids[:, None] * chunk + torch.arange(chunk, device=ids.device)).flatten()
    return rows[: len(rows) - (-tokens % chunk)]
