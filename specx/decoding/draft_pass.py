"""Passes of a draft model, shared by all levels of all trees, so that few are recorded.

A pass over 16 rows takes a GPU hardly longer than one over a single row, and recording it takes the
host as long as ten passes. So rows are filled up: a chain of tokens, and each level of a tree, is
read by the same recorded pass, whatever the shape of the trees. The rows after a level's own are
padding, which the next level overwrites.
"""

import torch
from torch import Tensor

from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.runner import SharedPart
from specx.models.call import TreeCall
from specx.models.loaded import LoadedModel
from specx.ops.ancestors import BITS, AncestorMask, chain_sets, words_for

ROWS = (16, 32, 64)  # of a pass
WORDS = 4  # of a set, at least: 16 levels of 16 nodes


def filled_up(rows: int) -> int:
    """Return the number of rows of the smallest pass that can read ``rows`` rows."""
    return next(each for each in ROWS if rows <= each)


def words_of(depth: int, width: int) -> int:
    """Return the words of a set in a tree with ``width`` expanded nodes in each level."""
    rows = max(0, depth - 2) * width + filled_up(max(width, depth + 1))
    return max(WORDS, 1 << (words_for(rows) - 1).bit_length())


class _Pass:
    """A pass over a fixed number of rows, with inputs that stay where they are.

    ``chain`` int64 [R, W]: the sets of a chain.
    """

    _cache: PreallocatedCache

    def __init__(self, model: LoadedModel, rows: int, words: int) -> None:
        self._model, device = model, model.device
        self._tokens, self._positions, self._slots = torch.zeros(
            3, rows, dtype=torch.int64, device=device
        )
        self._sets = torch.zeros(rows, words, dtype=torch.int64, device=device)
        self.chain = torch.zeros_like(self._sets)
        sets = chain_sets(rows, device)
        self.chain[:, : sets.shape[1]] = sets
        self._shared = SharedPart(self._read)

    def __call__(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, sets: Tensor,
        cache: PreallocatedCache,
    ) -> Tensor:  # fmt: skip
        self._cache = cache
        own = [self._tokens[: len(tokens)], self._positions, self._slots, self._sets]
        torch._foreach_copy_(own, [tokens, positions, slots, sets])
        return self._shared()

    def _read(self) -> Tensor:
        cache, sets = self._cache, self._sets
        call = TreeCall(
            ops=self._model.ops,
            mapping=cache.mapping_to(self._slots),
            prefix=cache.length,
            mask=AncestorMask(sets, BITS * sets.shape[1]),
        )
        return self._model.model.run(self._tokens, self._positions, call)


class DraftPasses:
    """The passes of a draft, by the number of rows and the number of words of a set."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._passes: dict[tuple[int, int], _Pass] = {}

    def prepare(self, words: int) -> None:
        """Make the inputs of passes, which cannot be made while a stage is recorded."""
        for rows in ROWS:
            if (rows, words) not in self._passes:
                self._passes[rows, words] = _Pass(self._model, rows, words)

    def chain(self, rows: int, words: int) -> Tensor:
        """Return the sets of a chain that fills the pass of ``rows`` rows: int64 [R, W]."""
        return self._passes[rows, words].chain

    def read(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, sets: Tensor,
        cache: PreallocatedCache,
    ) -> Tensor:  # fmt: skip
        """Read N tokens in a pass of R rows; return the logits [R, V] of all its rows.

        tokens int64 [N]; positions, slots int64 [R] and sets int64 [R, W] (``AncestorMask``): those
        of all rows. Rows after the first N write to cache rows that are not in use. ``cache``: the
        same in every call.
        """
        rows, words = sets.shape
        return self._passes[rows, words](tokens, positions, slots, sets, cache)
