"""Which chunks of the text the draft works on: pure functions, scores in, chunk ids out.

The text is cut into chunks (``Grid``); the last one may be short. Ids come back ascending, and the
newest chunk is always among them, so the draft sees what was just written. How long the text is
only the device knows (``tokens``, int64 [1]), so there are always k ids: where the text has fewer
chunks, the last ids lie beyond it and stand for nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BEYOND = 2**62  # a row that no text has


def count_chunks(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk)


@dataclass(frozen=True)
class Grid:
    """How a text is cut: a border every ``chunk`` tokens, the first chunk ``short`` tokens short.

    ``kept``: id of a chunk that is remembered whatever its score, or None.
    """

    chunk: int
    short: int = 0
    kept: int | None = None

    @classmethod
    def from_start(cls, prompt: int, chunk: int) -> "Grid":  # noqa: ARG003
        """Borders from the beginning of the text, as in SpecExtend."""
        return cls(chunk)

    @classmethod
    def around(cls, prompt: int, chunk: int) -> "Grid":
        """A chunk begins half a chunk before the end of a prompt of so many tokens, and is kept.

        A draft that does not see what is asked of it cannot guess the answer, and the request
        stands at the end of a prompt. Where borders fall at random, it may end a chunk of other
        text whose mean attention is low, and be forgotten with it. (SpecExtend cuts from the
        beginning of the text and keeps the newest chunk only.)
        """
        begin = max(0, prompt - chunk // 2)
        short = -begin % chunk
        return cls(chunk, short, (begin + short) // chunk)

    @classmethod
    def ending(cls, prompt: int, chunk: int) -> "Grid":
        """Borders from the beginning of the text; the chunk in which the prompt ends is kept."""
        return cls(chunk, kept=(prompt - 1) // chunk)

    def newest(self, tokens: Tensor) -> Tensor:
        """The chunk of the last token."""
        return (tokens - 1 + self.short) // self.chunk


def best_chunks(scores: Tensor, tokens: Tensor, grid: Grid, k: int) -> Tensor:
    """Cross-model retrieval: the k best chunks, the newest among them, and the one that is kept.

    ``scores`` [M]: of all chunks that there could be; −inf beyond the text.
    """
    ids = torch.arange(len(scores), device=scores.device)
    if grid.kept is not None:  # behind the newest, should there be room for one only
        scores = scores.where(ids != grid.kept, torch.finfo(scores.dtype).max)
    best = scores.where(ids != grid.newest(tokens), torch.inf).topk(min(k, len(scores)))
    return torch.where(best.values > -torch.inf, best.indices, len(scores)).sort().values


def streaming_chunks(tokens: Tensor, grid: Grid, k: int, sink: int) -> Tensor:
    """StreamingLLM: the first ``sink`` chunks of the text and the most recent k − sink."""
    place = torch.arange(k, device=tokens.device)
    behind = grid.newest(tokens) + 1 - k  # chunks that are left out
    return torch.where(place < min(sink, k - 1), place, place + behind.clamp(min=0))


def chunk_rows(ids: Tensor, grid: Grid) -> Tensor:
    """Token rows of the chosen chunks, ascending: ids int64 [k] -> int64 [k · chunk].

    Rows beyond the text come last, also where the first chunk is short.
    """
    count, chunk = len(ids) * grid.chunk, grid.chunk
    place = torch.arange(count, device=ids.device) + (ids[:1] == 0) * grid.short
    rows = ids[(place // chunk).clamp(max=len(ids) - 1)] * chunk + place % chunk - grid.short
    return rows.where(place < count, BEYOND)
