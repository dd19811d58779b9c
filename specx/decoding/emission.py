"""The tokens a step emits: one buffer int64, written on the device and read on the host.

Its fields, in this order: ``count`` [1], how many tokens were emitted; ``tokens`` [levels + 1] and
``chosen_by`` [levels + 1], the rows of the tree that chose them, of which ``count`` are valid;
``depths`` [nodes + 1] of all rows of the tree; ``note`` [1], the drafter's, where it has one.
"""

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from specx.ops.trees import Path, TokenTree


def pack(tree: TokenTree, path: Path, note: Tensor | None) -> Tensor:
    """Return the buffer of what following ``path`` through ``tree`` emits."""
    noted = [] if note is None else [note]
    return torch.cat([path.count[None], path.tokens, path.rows, tree.depths, *noted])


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
    def unpack(cls, numbers: list[int], levels: int, nodes: int) -> "Emitted":
        """Read the buffer's numbers, of a tree with so many levels and nodes."""
        count, fields = numbers[0], iter(numbers[1:])
        tokens, chosen_by = (list(islice(fields, levels + 1)) for _ in range(2))
        depths = list(islice(fields, nodes + 1))
        # Rows of a tree are sorted by weight, so a row's number is its rank.
        ranks = ((row, depths[1 : row + 1].count(depths[row])) for row in chosen_by[1:count])
        return cls(tokens=tuple(tokens[:count]), ranks=tuple(ranks), note=next(fields, None))
