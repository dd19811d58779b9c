"""What the draft remembers: a store of everything, and the small working view it drafts from."""

import torch
from torch import Tensor

from specx.caches.policies import chunk_rows
from specx.caches.preallocated import CacheShape, PreallocatedCache
from specx.caches.rotary import rotate


class DraftCache:
    """The draft's full store and its working view.

    ``store`` holds a row for every token of the text, with the position at which its key was
    computed. ``working`` is what the draft attends to: chosen rows at compact positions 0 … n−1,
    then the tokens committed since. Without a policy (``working_capacity`` None) both are one
    cache and positions are those of the text.
    """

    def __init__(
        self, shape: CacheShape, capacity: int, inv_freq: Tensor, working_capacity: int | None
    ) -> None:
        self.store = PreallocatedCache(shape, capacity)
        self.is_full = working_capacity is None
        self.working = (
            self.store if working_capacity is None else PreallocatedCache(shape, working_capacity)
        )
        self.inv_freq = inv_freq
        self.positions = torch.arange(capacity, device=shape.device)

    def commit(self, rows: int) -> None:
        """The first ``rows`` scratch rows of the working view become text, in the store too."""
        if not self.is_full:
            start, end = self.working.committed, self.working.committed + rows
            at, to = self.store.committed, self.store.committed + rows
            self.store.storage[:, :, :, at:to] = self.working.storage[:, :, :, start:end]
            self.positions[at:to] = torch.arange(start, end, device=self.positions.device)
            self.store.wrote(rows)
            self.store.commit(rows)
        self.working.commit(rows)

    def choose(self, chunks: Tensor, chunk: int) -> None:
        """Fill the working view with the given chunks (ids ascending, the newest among them).

        Keys are always taken from the store and rotated once from the position at which they were
        computed, so the error of a rotation never adds up.
        """
        rows = chunk_rows(chunks, chunk, self.store.committed)
        count = len(rows)
        picked = self.store.storage.index_select(3, rows)
        shift = torch.arange(count, device=rows.device) - self.positions[rows]
        self.working.storage[:, 0, :, :count] = rotate(picked[:, 0], shift, self.inv_freq)
        self.working.storage[:, 1, :, :count] = picked[:, 1]
        self.working.refill(count)
