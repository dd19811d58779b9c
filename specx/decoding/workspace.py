"""Caches, buffers and recorded stages, which one document leaves to the next."""

from dataclasses import dataclass, replace

import torch

from specx.decoding.drafter import Drafter
from specx.decoding.forward import cache_shape, rows_ahead
from specx.decoding.methods import Pair
from specx.decoding.sources import AHEAD, SourceSettings, room_for
from specx.decoding.step import DecodingState
from specx.ops.trees import MAX_ROWS
from specx.profile import Settings

STEP = 2048  # rows by which small caches grow; large ones grow by an eighth
# From here on no kernel divides its work by the capacity, so caches of any size round alike:
# tree attention has at most 64 parts of at least two blocks of 64 rows.
ALIKE = 8192


def capacity_for(tokens: int) -> int:
    """Return the rows of a cache for a text of at most ``tokens`` tokens, and a tree behind it.

    It grows in steps, so that the caches of one document often do for the next.
    """
    rows = tokens + AHEAD + MAX_ROWS
    step = max(STEP, 1 << (rows.bit_length() - 4))
    return -(-rows // step) * step


def cache_bytes(pair: Pair, capacity: int) -> int:
    """Return the bytes of keys and values for texts of ``capacity`` rows, at most.

    Of the target those that it has; the draft's store may have to keep every row.
    """
    target, draft = pair.target, pair.draft
    needed = cache_shape(target).bytes(capacity, rows_ahead(target.device))
    return needed if draft is None else needed + cache_shape(draft).bytes(capacity)


def kind_of(pair: Pair, settings: Settings, sources: SourceSettings | None = None) -> object:
    """Return all that a document's workspace depends on, but for its capacity.

    Equal for documents that may take over each other's.
    """
    kept_queries = (sources.layer, room_for(settings.limit)) if sources else None
    return pair, replace(settings, limit=0), kept_queries


@dataclass(eq=False)
class Workspace:
    """Everything that decoding a document needs but its text.

    ``kind``: as in ``kind_of``; None for one that no other document takes. ``capacity``: rows of
    the target's cache. ``drafter``: at work once a plain token is timed.
    """

    kind: object | None
    capacity: int
    state: DecodingState
    drafter: Drafter

    @torch.inference_mode()
    def begin(self) -> bool:
        """Clear all of a document, for the next; return False if impossible."""
        self.state.begin()
        return self.drafter.begin()

    def fall_back(self, *, keep: bool) -> None:
        """Decode plainly to the end. What drafting needed is freed, unless the next may take it."""
        if keep:
            self.state.draft_with(self.state.plain)
        else:
            self.drafter = self.state.plain
            self.state.fall_back()


@dataclass
class WorkspacePool:
    """Holds the workspace that the last document left, until the next one takes it.

    While a document is decoded the pool is empty: what was interrupted or failed leaves nothing.
    """

    _kept: Workspace | None = None

    @property
    def capacity(self) -> int:
        """Rows of the target's cache on the pool, 0 if there is none."""
        return self._kept.capacity if self._kept else 0

    def acquire(self, kind: object, capacity: int) -> Workspace | None:
        """Hand out the workspace for a document of a ``kind`` that needs ``capacity`` rows.

        Returns None if there is none that computes what a new one would; the memory is freed.
        """
        workspace, self._kept = self._kept, None
        if workspace is None or workspace.kind != kind:
            return None
        fits = workspace.capacity == capacity or workspace.capacity > capacity >= ALIKE
        return workspace if fits and workspace.begin() else None

    def release(self, workspace: Workspace) -> None:
        """Return the workspace of a finished document."""
        self._kept = workspace

    def clear(self) -> None:
        """Free the memory."""
        self._kept = None
