"""Passes of a draft that all levels of all trees share, so that few have to be recorded.

A pass over 16 rows takes a GPU hardly longer than one over a single row, and recording it takes the
host as long as ten passes. So rows are filled up: a chain of tokens, and each level of a tree, is
read by the same recorded pass, whatever the shape of the trees. What the rows behind a level's own
hold is overwritten by the next ones.
"""

import torch
from torch import Tensor

from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.runner import SharedPart
from specx.models.call import TreeCall
from specx.models.loaded import LoadedModel
from specx.ops.ancestors import BITS, AncestorMask, words_for

ROWS = 16  # rows of a pass are a multiple of it
WORDS = 4  # and words of their sets at least as many: 16 levels of 16 nodes


def filled_up(rows: int) -> int:
    """Return the rows of the pass that reads so many."""
    return -(-rows // ROWS) * ROWS


def words_of(depth: int, width: int) -> int:
    """Return the words of sets of trees with ``width`` expanded nodes in each of their levels."""
    rows = max(0, depth - 2) * width + filled_up(max(width, depth + 1))
    return max(WORDS, 1 << (words_for(rows) - 1).bit_length())


class _Pass:
    """A pass over a fixed number of rows, with inputs that stay where they are."""

    def __init__(self, model: LoadedModel, cache: PreallocatedCache, rows: int, words: int) -> None:
        self._model, self._cache = model, cache
        self._inputs = [
            *torch.zeros(3, rows, dtype=torch.int64, device=model.device),
            torch.zeros(rows, words, dtype=torch.int64, device=model.device),
        ]
        self._shared = SharedPart(self._read)

    def __call__(self, tokens: Tensor, *others: Tensor) -> Tensor:
        own = [self._inputs[0][: len(tokens)], *self._inputs[1:]]
        torch._foreach_copy_(own, [tokens, *others])
        return self._shared()

    def _read(self) -> Tensor:
        tokens, positions, slots, sets = self._inputs
        call = TreeCall(
            ops=self._model.ops,
            mapping=self._cache.mapping_to(slots),
            prefix=self._cache.length,
            mask=AncestorMask(sets, BITS * sets.shape[1]),
        )
        return self._model.model.run(tokens, positions, call)


class DraftPasses:
    """The passes of a draft, by their numbers of rows and of words of a set."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._passes: dict[tuple[int, int], _Pass] = {}

    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        sets: Tensor,
        cache: PreallocatedCache,
    ) -> Tensor:
        """Read N tokens, and whatever else fills up a pass; return all its logits [R, V].

        tokens int64 [N]; positions, slots int64 [R] and sets int64 [R, W] (``AncestorMask``) of all
        rows, of which those behind the N write where nothing is needed. ``cache``: always the same.
        """
        size = rows, words = sets.shape
        if size not in self._passes:
            self._passes[size] = _Pass(self._model, cache, rows, words)
        return self._passes[size](tokens, positions, slots, sets)
