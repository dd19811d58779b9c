"""Chunks of the text: how it is cut, and the rows of a chosen set of chunks.

Chunk ids are ascending, and the newest chunk is always among the chosen ones, so the draft sees
what was just written. Only the device knows the length of the text (``tokens``, int64 [1]), so
there are always k ids: where the text has fewer chunks, padding ids sort last.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BEYOND = 2**62  # a row that no text has
PASSAGE = 64  # tokens of a document that a sentence may be from; its last passage may be short


@dataclass(frozen=True)
class Grid:
    """The cut of a text: a border every ``chunk`` tokens, the first chunk ``short`` tokens short.

    ``kept``: id of a chunk kept whatever its score, or None.
    """

    chunk: int
    short: int = 0
    kept: int | None = None

    @classmethod
    def around(cls, prompt: int, chunk: int) -> "Grid":
        """Begin a chunk half a chunk before the end of the prompt, and keep it always.

        A draft that does not see what is asked of it cannot guess the answer, and the request
        stands at the end of a prompt. Where borders fall at random, it may end a chunk of other
        text whose mean attention is low, and be forgotten with it. (SpecExtend cuts from the
        beginning of the text and keeps the newest chunk only.)
        """
        begin = max(0, prompt - chunk // 2)
        short = -begin % chunk
        return cls(chunk, short, (begin + short) // chunk)

    def newest(self, tokens: Tensor) -> Tensor:
        """Return the chunk of the last token: int64 [1]."""
        return (tokens - 1 + self.short) // self.chunk

    def chunk_of(self, row: int) -> int:
        """Return the chunk of a row."""
        return (row + self.short) // self.chunk

    def span_of(self, chunk: int) -> tuple[int, int]:
        """Return the first row of a chunk, and the one behind its last."""
        start = chunk * self.chunk - self.short
        return max(0, start), start + self.chunk


def streaming_chunks(tokens: Tensor, grid: Grid, k: int, sink: int) -> Tensor:
    """Choose as StreamingLLM does: the first ``sink`` chunks and the most recent k − sink."""
    place = torch.arange(k, device=tokens.device)
    behind = grid.newest(tokens) + 1 - k  # chunks that are not chosen
    return torch.where(place < min(sink, k - 1), place, place + behind.clamp(min=0))


def chunk_rows(ids: Tensor, grid: Grid) -> Tensor:
    """List the rows of the chosen chunks, ascending: ids int64 [k] -> int64 [k · chunk].

    Padding rows sort last, also where the first chunk is short.
    """
    count, chunk = len(ids) * grid.chunk, grid.chunk
    place = torch.arange(count, device=ids.device) + (ids[:1] == 0) * grid.short
    rows = ids[(place // chunk).clamp(max=len(ids) - 1)] * chunk + place % chunk - grid.short
    return rows.where(place < count, BEYOND)
