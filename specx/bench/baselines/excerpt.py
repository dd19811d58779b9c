"""An excerpt of a cache: some rows of a long text, for the same model to draft on."""

import torch
from torch import Tensor

from specx.decoding.kv_cache import CacheShape, PreallocatedCache
from specx.ops.chunks import Grid, chunk_rows


class Excerpt(PreallocatedCache):
    """Chosen rows of ``source``, then all that became text there since, then drafts.

    The rows are copies, and keys keep the positions at which they were computed: it is the same
    model, so it is at home at all positions of the text, and what it drafts comes from the very
    keys that verification uses. ``gap`` int64 [1]: how many tokens of the text are left out.
    """

    def __init__(
        self, source: PreallocatedCache, shape: CacheShape, capacity: int, most: int
    ) -> None:
        """``most``: tokens that become text between two calls of ``follow``, at most."""
        super().__init__(shape, capacity)
        self.source = source
        self.gap = torch.zeros_like(self.length)
        self._copied = torch.zeros_like(self.length)  # rows that are not drafts
        self._new = torch.arange(most, device=shape.device)

    @property
    def next_position(self) -> Tensor:
        return self.length + self.gap

    def choose(self, chunks: Tensor, chunk: int) -> None:
        """Hold the given chunks (int64 ids as ``policies`` returns them) and nothing else."""
        rows = chunk_rows(chunks, Grid(chunk))
        known = (rows < self.source.length).sum()  # the others only fill up the shape
        self.storage[:, :, :, : len(rows)] = self._rows_of_source(rows)
        self._copied.copy_(known)
        self.gap.copy_(self.source.length - known)
        self.refill(known)

    def follow(self) -> None:
        """Drop the drafts and take up what became text in the source since the last time."""
        self.refill(self._copied[0])
        rows = self._rows_of_source(self.next_position + self._new)
        self.storage.index_copy_(3, self.mapping(len(self._new)).slots, rows)
        self._copied.copy_(self.source.length - self.gap)
        self.refill(self._copied[0])

    def _rows_of_source(self, rows: Tensor) -> Tensor:
        return self.source.storage.index_select(3, rows.clamp(max=self.source.capacity - 1))
