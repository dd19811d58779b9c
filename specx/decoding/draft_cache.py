"""The draft's cache: a store with the whole text, and the small working cache."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specx.decoding.kv_cache import CacheShape, PreallocatedCache
from specx.ops.chunks import Grid


class DraftCache:
    """The draft's full store and its working cache.

    ``store`` has a row for every token of the text, and the position at which each key was
    computed. The draft attends to ``working``: chosen rows at compact positions 0 … n−1, then the
    tokens committed since. Both caches share the recurrent states of the whole text. Without a
    policy (``working_capacity`` None), ``working`` is the store itself, with the text's positions,
    and layers with a window keep only that window. With a policy, the store keeps all rows of all
    layers, because any chunk may be chosen. ``grid``: the division of the text into chunks.
    ``shift``: the index of row 0's token; 1 for a head, which has no row for the first token.
    """

    def __init__(
        self,
        shape: CacheShape,
        capacity: int,
        inv_freqs: Sequence[Tensor],
        working_capacity: int | None,
        shift: int = 0,
        ahead: int | None = None,
    ) -> None:
        """``inv_freqs``: for each group of the shape, [R/2] in radians per position.

        ``ahead``: as in ``PreallocatedCache``, for a store that is also the working cache.
        """
        self.is_full = working_capacity is None
        self.store = PreallocatedCache(shape, capacity, ahead if self.is_full else None)
        self.working = (
            self.store if working_capacity is None else PreallocatedCache(shape, working_capacity)
        )
        self.working.share_states(self.store)
        self.ops, self.inv_freqs = shape.ops, inv_freqs
        self.grid, self.shift = Grid(chunk=1), shift
        self.positions = torch.arange(capacity, device=shape.device)

    @property
    def text_length(self) -> Tensor:
        """Number of tokens read: int64 [1]."""
        return self.store.length + self.shift if self.shift else self.store.length

    def clear(self, kept: int = 0) -> None:
        """Forget the text, except for its first ``kept`` rows if the store has marked them."""
        if not self.is_full:
            self.working.clear()
        if kept and self.store.marked == kept:
            self.store.rewind()
        else:
            self.store.clear()
        self.grid = Grid(chunk=1)
        # Rows of the output were appended with the positions that they had in the working cache.
        torch.arange(len(self.positions), out=self.positions)

    def commit(self, count: Tensor, written: int) -> None:
        """Commit the first ``count`` (int64 []) of ``written`` new rows of the working cache.

        The store gets all ``written`` rows, so the host need not know ``count``.
        """
        store, working = self.store, self.working
        if not self.is_full:
            lengths = working.length, store.length
            for source, to in zip(working.storages, store.storages, strict=True):
                self.ops.append_rows(source, to, lengths, self.positions, written)
            store.length += count
        working.commit_chain(count, written)

    def choose(self, chunks: Tensor) -> None:
        """Fill the working cache with the given chunks. Ids ascend and include the newest chunk.

        Padding ids sort last. Keys are always copied from the store and rotated once from their
        original position, so rotation errors do not accumulate.
        """
        store, working = self.store, self.working
        grid = replace(self.grid, short=self.grid.short + self.shift)  # of rows
        groups = zip(store.storages, working.storages, self.inv_freqs, strict=True)
        for rows, to, inv_freq in groups:
            self.ops.gather_chunks(
                rows, to, chunks, self.positions, inv_freq, (store.length, working.length), grid
            )
