"""What the draft remembers: a store of everything, and the small working view it drafts from."""

import torch
from torch import Tensor

from specx.engine.kv_cache import CacheShape, PreallocatedCache
from specx.kernels import fused
from specx.kernels.chunks import Grid, chunk_rows
from specx.kernels.torch.rotary import rotate


class DraftCache:
    """The draft's full store and its working view.

    ``store`` holds a row for every token of the text, with the position at which its key was
    computed. ``working`` is what the draft attends to: chosen rows at compact positions 0 … n−1,
    then the tokens committed since. Without a policy (``working_capacity`` None) both are one
    cache and positions are those of the text. ``grid``: how the text is cut into chunks.
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
        self.grid = Grid(chunk=1)
        self.positions = torch.arange(capacity, device=shape.device)

    def commit(self, count: Tensor) -> None:
        """The first ``count`` (int64 []) scratch rows of the working view become text, in the
        store too. All scratch rows are copied, so that the host need not know how many stay."""
        if not self.is_full:
            self._take_over()
            self.store.commit(count)
        self.working.commit(count)

    def _take_over(self) -> None:
        """Copy the scratch rows of the working view behind the text of the store."""
        working, store = self.working, self.store
        if fused.serves(store.storage):
            from specx.kernels.triton import move_rows as triton_move

            triton_move.take_over(
                working.storage, store.storage, (working.length, store.length), self.positions,
                working.scratch,
            )  # fmt: skip
            return
        source, to = working.places(working.scratch), store.places(working.scratch)
        store.storage.index_copy_(3, to, working.storage.index_select(3, source))
        self.positions.index_copy_(0, to, source)

    def choose(self, chunks: Tensor) -> None:
        """Fill the working view with the given chunks (ids ascending, the newest among them).

        Ids beyond the text stand for nothing; they come last. Keys are always taken from the store
        and rotated once from the position at which they were computed, so the error of a rotation
        never adds up.
        """
        store, working = self.store, self.working
        if fused.serves(store.storage):
            from specx.kernels.triton import gather_chunks as triton_choose

            triton_choose.choose(
                store.storage, working.storage, chunks, self.positions, self.inv_freq,
                (store.length, working.length), self.grid,
            )  # fmt: skip
            working.drop_scratch()
            return
        rows = chunk_rows(chunks, self.grid)
        known = rows < store.length  # the others only fill up the shape
        rows = rows.clamp(max=store.capacity - 1)
        count = len(rows)
        picked = store.storage.index_select(3, rows)
        shift = torch.arange(count, device=rows.device) - self.positions[rows]
        working.storage[:, 0, :, :count] = rotate(picked[:, 0], shift, self.inv_freq)
        working.storage[:, 1, :, :count] = picked[:, 1]
        working.refill(known.sum())

    def mark(self) -> Tensor:
        """How much is text now, for ``rewind``: int64 [2]."""
        return torch.cat([self.store.length, self.working.length])

    def rewind(self, mark: Tensor) -> None:
        """Forget what became text since the mark; nothing was chosen since."""
        self.store.refill(mark[0])
        self.working.refill(mark[1])
