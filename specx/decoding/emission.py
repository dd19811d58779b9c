"""The tokens a step emits: one typed buffer, written on the device and read on the host."""

from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from specx.ops.trees import Path, TokenTree


@dataclass(frozen=True, kw_only=True)
class EmissionLayout:
    """The places of the fields in a step's buffer, for trees of some ``levels`` and ``rows``.

    In this order: ``count`` [1], how many tokens were emitted; ``tokens`` [levels + 1] and
    ``chosen_by`` [levels + 1], the rows of the tree that chose them, of which ``count`` are valid;
    ``depths`` [rows] of all rows of the tree; ``note`` [1], the drafter's, where it has one.
    """

    levels: int
    rows: int

    @cached_property
    def tokens(self) -> slice:
        return slice(1, self.levels + 2)

    @cached_property
    def chosen_by(self) -> slice:
        return slice(self.tokens.stop, self.tokens.stop + self.levels + 1)

    @cached_property
    def depths(self) -> slice:
        return slice(self.chosen_by.stop, self.chosen_by.stop + self.rows)

    @property
    def note(self) -> int:
        return self.depths.stop


@cache  # one for each shape of a tree, with its places
def _layout(levels: int, rows: int) -> EmissionLayout:
    return EmissionLayout(levels=levels, rows=rows)


@dataclass(frozen=True)
class Emission:
    """A step's buffer on the device: ``buffer`` int64, laid out as ``layout`` says."""

    layout: EmissionLayout
    buffer: Tensor

    @classmethod
    def of(cls, tree: TokenTree, path: Path, note: Tensor | None) -> "Emission":
        """Write what following ``path`` through ``tree`` emits."""
        layout = _layout(tree.levels, tree.nodes + 1)
        noted = [] if note is None else [note]
        fields = [path.count[None], path.tokens, path.rows, tree.depths, *noted]
        return cls(layout, torch.cat(fields))


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """A step's buffer on the host.

    ``tokens``: what was emitted, the bonus token last. ``ranks``: of each accepted draft, its rank
    among the nodes of the tree and among those of its level, from 1, the likeliest first.
    """

    tokens: tuple[int, ...]
    ranks: tuple[tuple[int, int], ...]
    note: int | None

    @classmethod
    def read(cls, layout: EmissionLayout, numbers: list[int]) -> "Emitted":
        """Read the buffer's numbers."""
        count, rows, depths = numbers[0], numbers[layout.chosen_by], numbers[layout.depths]
        # Rows of a tree are sorted by weight, so a row's number is its rank.
        ranks = ((row, depths[1 : row + 1].count(depths[row])) for row in rows[1:count])
        return cls(
            tokens=tuple(numbers[layout.tokens][:count]),
            ranks=tuple(ranks),
            note=numbers[layout.note] if len(numbers) > layout.note else None,
        )
