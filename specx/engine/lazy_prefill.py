"""Prefill of the chunks that a draft works on, and of no others.

A draft with a small working cache looks at a tenth of a long prompt. Where it reads in a window, a
layer's keys and values of a chunk follow from what the layer below computed for the chunk and the
window before it. So a chunk is read when it is first chosen, and of the chunks before it no more
layers than it needs; what is known of a chunk is the same as if all of the prompt had been read.

Only for a CPU, where the host may look at what was chosen. On a GPU a draft reads 16K tokens in 4
ms.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from specx.engine.forward import PREFILL_CHUNK
from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.chunks import Grid
from specx.models.call import PrefillCall, SlotMapping
from specx.models.fused_layers import FusedModel


class LazyPrefill:
    """The prompt of one document, of which a draft has read some chunks.

    For each chunk of the prompt: ``_ran``, the layers that have run, whose output is in the
    prompt's ``_states`` [L, K]; ``_stored``, the layers whose keys and values are in the store.
    """

    def __init__(
        self, model: FusedModel, store: PreallocatedCache, prompt: Tensor, grid: Grid, window: int
    ) -> None:
        """``prompt`` int64 [L], whose rows are the first of ``store``; ``window``: in tokens."""
        self._model, self._store, self._prompt = model, store, prompt
        self._grid, self._window = grid, window
        chunks = self._chunk_of(len(prompt) - 1) + 1
        self._ran, self._stored = [0] * chunks, [0] * chunks
        self._states = torch.empty(len(prompt), model.hidden_size, dtype=store.storage.dtype)

    def read(self, chunks: Tensor) -> None:
        """Read what has not been read of chunks: ids int64 [k], others than the prompt's ignored.

        Their rows in the store are filled.
        """
        needed = self._needed({chunk for chunk in chunks.tolist() if chunk < len(self._ran)})
        for layer, stored in enumerate(needed):
            through = needed[layer + 1] if layer + 1 < len(needed) else set()
            for start, end in self._spans(stored - through, self._stored, layer):
                self._pass(layer, start, end, runs=False)
            # In the order of the text: a chunk attends to those in front of it.
            for start, end in self._spans(through, self._ran, layer):
                self._pass(layer, start, end, runs=True)

    def _needed(self, chosen: set[int]) -> list[set[int]]:
        """Return for each layer the chunks whose keys and values must be there.

        What one layer needs the layer below has run for, and that in the window before it.
        """
        needed = [chosen]
        for layer in range(len(self._model.layers) - 1, 0, -1):
            above = needed[-1]
            seen = (self._seen_by(chunk) for chunk in above if self._ran[chunk] < layer)
            needed.append(above.union(*seen))
        return needed[::-1]

    def _seen_by(self, chunk: int) -> range:
        """Return the chunks in front of a chunk that it attends to."""
        start, _ = self._rows_of(chunk)
        return range(self._chunk_of(max(0, start - self._window + 1)), chunk)

    def _spans(
        self, chunks: Iterable[int], done: list[int], layer: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the rows of chunks with no more than ``layer`` layers done, neighbours together."""
        span: tuple[int, int] | None = None
        for chunk in sorted(chunks):
            if done[chunk] > layer:
                continue
            start, end = self._rows_of(chunk)
            if span is None:
                span = start, end
            elif start == span[1] and end - span[0] <= PREFILL_CHUNK["cpu"]:
                span = span[0], end
            else:
                yield span
                span = start, end
        if span is not None:
            yield span

    def _pass(self, layer: int, start: int, end: int, *, runs: bool) -> None:
        """Store a layer's keys and values of rows of the prompt, and if it ``runs`` its output."""
        positions = torch.arange(start, end)
        x = self._states[start:end] if layer else self._model.embed(self._prompt[start:end])
        cos, sin = self._model.angles(x, positions)
        call = PrefillCall(
            ops=self._model.ops,
            mapping=SlotMapping(self._store.storage, positions),
            past=start,
            window=self._window,
        )
        known = range(self._chunk_of(start), self._chunk_of(end - 1) + 1)
        if runs:
            self._states[start:end] = self._model.layers[layer].run(x, cos, sin, call)
            for chunk in known:
                self._ran[chunk] = layer + 1
        else:
            self._model.layers[layer].fill(x, cos, sin, call)
        for chunk in known:
            self._stored[chunk] = layer + 1

    def _chunk_of(self, row: int) -> int:
        return (row + self._grid.short) // self._grid.chunk

    def _rows_of(self, chunk: int) -> tuple[int, int]:
        """Return the first row of a chunk, and the one behind its last in the prompt."""
        start = chunk * self._grid.chunk - self._grid.short
        return max(0, start), min(len(self._prompt), start + self._grid.chunk)
