"""The tokens a step emits: one buffer int64, written on the device and read on the host.

Fields, in order: ``count`` [1], how many tokens were emitted; ``tokens`` [levels + 1] and
``chosen_by`` [levels + 1], the rows of the tree that chose them, both valid up to ``count``;
``depths`` [nodes + 1] of all rows of the tree; ``gain`` [1], the result of
``Drafter.expected_gain`` unless it is None.
"""

from itertools import islice

import torch
from torch import Tensor

from specx.ops.trees import Path, TokenTree


def pack(tree: TokenTree, path: Path, gain: Tensor | None) -> Tensor:
    """Return the buffer for the tokens emitted by following ``path`` through ``tree``."""
    gains = [] if gain is None else [gain]
    return torch.cat([path.count[None], path.tokens, path.rows, tree.depths, *gains])


def unpack(
    numbers: list[int], levels: int, nodes: int
) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Return tokens, ranks and gain from a buffer's numbers, for a tree of the given size.

    The bonus token comes last. Ranks are those of accepted drafts in their levels, from 1, the
    likeliest first.
    """
    count, fields = numbers[0], iter(numbers[1:])
    tokens, chosen_by = (list(islice(fields, levels + 1)) for _ in range(2))
    depths = list(islice(fields, nodes + 1))
    # Rows of a tree are sorted by weight.
    ranks = (depths[1 : row + 1].count(depths[row]) for row in chosen_by[1:count])
    return tuple(tokens[:count]), tuple(ranks), next(fields, None)
