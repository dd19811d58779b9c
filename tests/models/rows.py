"""Rows of trees beside the same rows alone: each has numbers of its own, to the bit."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor

from specx.models.decoder import Decoder
from tests.models.families import Text, ancestors_of
from tests.ops.examples import random_parents

CAPACITY = 640
ROWS = (1, 2, 3, 8, 16, 33, 64)
DEEPEST = 12  # rows of a path that are read one by one


def tree_of(rows: int, seed: int) -> list[int]:
    """Parents of a random tree, or of a chain."""
    return [max(0, row - 1) for row in range(rows)] if seed % 3 == 0 else random_parents(rows, seed)


def places_in(rows: int) -> list[int]:
    return sorted({0, 1 % rows, rows // 3, rows // 2, rows - 1})


def copy_of(text: Text) -> Text:
    """A copy of a text, but not of its decoder."""
    return deepcopy(text, {id(text.decoder): text.decoder})


def logits_alone(text: Text, drawn: Tensor, path: list[int]) -> Tensor:
    """Read a row's ancestors one by one, as plain decoding does; return its logits [1, V]."""
    alone = copy_of(text)
    for row in path:
        logits = alone.verify(drawn[row : row + 1], [0])
        alone.keep([0])
    return logits


def check_rows(
    decoder: Decoder,
    seed: int,
    prefixes: Sequence[int],
    dtype: torch.dtype | None = None,
    *,
    only: int | None = None,
) -> None:
    """Compare rows of a tree behind each of these many tokens with themselves alone.

    ``dtype``: of keys and values, None: the decoder's. ``only``: the place of one prefix.
    """
    drawn = torch.randint(3, 131, (CAPACITY,), generator=torch.Generator().manual_seed(seed))
    for number, prefix in enumerate(prefixes):
        if only not in (None, number):
            continue
        text = Text(decoder, CAPACITY, ahead=64, dtype=dtype)
        for part in drawn[:prefix].split(64):
            text.read(part, 1)
        rows = ROWS[(number + seed) % len(ROWS)]
        parents, tokens = tree_of(rows, number), drawn[prefix : prefix + rows]
        logits = copy_of(text).verify(tokens, parents)
        for row in places_in(rows):
            path = ancestors_of(tuple(parents))[row]
            if len(path) <= DEEPEST:
                alone = logits_alone(text, tokens, path)
                assert torch.equal(logits[row], alone[0]), (prefix, rows, row)
