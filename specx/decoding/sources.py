"""Record the queries that show which passages the tokens of an output come from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.models.call import KeptQueries
from specx.ops.trees import MAX_ROWS

AHEAD = 3 * MAX_ROWS  # tokens beyond the last one wanted: a tree, and a step that is dropped
ROWS = 1024  # by which the room for queries grows
DEPTH = 0.6  # of the layers: there attention tells best what a sentence is from (docs/sources.md)


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The settings for recording attention: the document's rows, and the layer, from 0."""

    layer: int
    document: range


class SourceQueries:
    """The queries that predicted the tokens of an output, kept on the device.

    ``kept``: the queries of the latest pass. ``queries`` [Hq, tokens, D]: query n predicts token n
    of the output. ``prompt``: the number of prompt tokens, which query 0 sees.
    """

    def __init__(self, kept: KeptQueries, tokens: int) -> None:
        self.kept, self.prompt = kept, 0
        heads, rows, dim = kept.queries.shape
        self.queries = kept.queries.new_zeros(heads, tokens, dim)
        self._row = torch.arange(rows, device=kept.queries.device)
        # The row of the cache whose query predicts the first token.
        self._first = torch.zeros(1, dtype=torch.int64, device=kept.queries.device)

    def begin(self, prompt: int) -> None:
        """Begin an output after ``prompt`` tokens; row 0 of ``kept`` is the last one's query."""
        self.prompt = prompt
        self._first.fill_(prompt - 1)
        self.queries[:, 0] = self.kept.queries[:, 0]

    def keep(self, path: Tensor, length: Tensor) -> None:
        """Keep the queries of rows ``path`` int64 [n], from index ``length`` on.

        Rows that are not committed are written, too. The next step overwrites them.
        """
        places = length - self._first + self._row[: len(path)]
        self.queries.index_copy_(1, places, self.kept.queries.index_select(1, path))


def room_for(limit: int) -> int:
    """Return the number of queries kept for an output of at most ``limit`` tokens."""
    return -(-(limit + AHEAD + MAX_ROWS) // ROWS) * ROWS


def source_layer(full_layers: Sequence[int], num_layers: int) -> int | None:
    """Return the layer whose attention gives the sources, from 0; None without full layers."""
    wanted = round(DEPTH * num_layers)
    return min(full_layers, key=lambda layer: abs(layer - wanted), default=None)
