"""Prefill of the chunks that a draft works on, and of no others.

A draft with a small working cache looks at a tenth of a long prompt. Where it reads in a window, a
layer's keys and values of a chunk follow from what the layer below computed for the chunk and the
window before it. So a chunk is read when it is first chosen, and of the chunks before it no more
layers than it needs; what is known of a chunk is the same as if all of the prompt had been read.

Only for a CPU, where the host may look at what was chosen. On a GPU a draft reads 16K tokens in 4
ms.
"""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import PrefillCall
from specx.models.decoder import Decoder
from specx.ops.chunks import Grid


class LazyPrefill:
    """The prompt of one document, of which a draft has read some chunks.

    For each chunk of the prompt: ``_ran``, the layers that have run, whose output is in the
    prompt's ``_states`` [L, K]; ``_stored``, the layers whose keys and values are in the store.
    """

    def __init__(
        self, model: Decoder, store: PreallocatedCache, prompt: Tensor, grid: Grid, window: int
    ) -> None:
        """``prompt`` int64 [L], whose rows are the first of ``store``; ``window``: in tokens."""
        self._model, self._store, self._prompt = model, store, prompt
        self._grid, self._window = grid, window
        chunks = grid.chunk_of(len(prompt) - 1) + 1
        self._ran, self._stored = [0] * chunks, [0] * chunks
        width = model.embed(prompt[:1]).shape[1]
        self._states = torch.empty(len(prompt), width, dtype=store.storages[0].dtype)
        self._seconds = 0.0

    def read(self, chunks: Tensor) -> None:
        """Read what has not been read of chunks: ids int64 [k], others than the prompt's ignored.

        Their rows in the store are filled.
        """
        began = time.perf_counter()
        needed = self._needed({chunk for chunk in chunks.tolist() if chunk < len(self._ran)})
        for layer, stored in enumerate(needed):
            ran = needed[layer + 1] if layer + 1 < len(needed) else set()
            runs = {chunk for chunk in ran if self._ran[chunk] <= layer}
            new = {chunk for chunk in stored if self._stored[chunk] <= layer}
            # In the order of the text: a chunk attends to those in front of it.
            for group in self._groups(sorted(new | runs)):
                self._pass(layer, group, [chunk for chunk in group if chunk in runs])
        self._seconds += time.perf_counter() - began

    def seconds(self) -> float:
        """Return the seconds of reading since this was last asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

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
        start, _ = self._grid.span_of(chunk)
        return range(self._grid.chunk_of(max(0, start - self._window + 1)), chunk)

    def _groups(self, chunks: list[int]) -> Iterator[list[int]]:
        """Yield as many chunks as are read in one pass."""
        size = max(1, PREFILL_CHUNK["cpu"] // self._grid.chunk)
        for first in range(0, len(chunks), size):
            yield chunks[first : first + size]

    def _pass(self, layer: int, chunks: list[int], runs: list[int]) -> None:
        """Store a layer's keys and values of chunks, and have it run for some of them."""
        work, rows = self._model.layers[layer], self._rows_of(chunks)
        ids = self._prompt[rows]
        embedded = self._model.embed(ids)
        inputs = self._model.inputs(ids, rows, embedded)
        x = self._states[rows] if layer else embedded
        q = work.fill(x, inputs, self._call(rows))
        for chunk in chunks:
            self._stored[chunk] = max(layer + 1, self._stored[chunk])
        if not runs:
            return
        ran = self._rows_of(runs)
        places, attended = torch.searchsorted(rows, ran), []
        for start, end in self._spans(runs):
            first = int(torch.searchsorted(rows, start))
            part = q[:, first : first + end - start]
            attended.append(work.attend(part, self._call(rows, start)))
        self._states[ran] = work.finish(torch.cat(attended), x[places], inputs.at(places))
        for chunk in runs:
            self._ran[chunk] = layer + 1

    def _call(self, rows: Tensor, past: int = 0) -> PrefillCall:
        mapping = self._store.mapping_to(rows)
        return PrefillCall(ops=self._model.ops, mapping=mapping, past=past, window=self._window)

    def _spans(self, chunks: list[int]) -> Iterator[tuple[int, int]]:
        """Yield first and last rows of chunks in the prompt, those of neighbours together."""
        start, end = self._grid.span_of(chunks[0])
        for chunk in chunks[1:]:
            first, last = self._grid.span_of(chunk)
            if first != end:
                yield start, end
                start = first
            end = last
        yield start, min(end, len(self._prompt))

    def _rows_of(self, chunks: list[int]) -> Tensor:
        """Return the rows of chunks: int64 [T], ascending."""
        return torch.cat([torch.arange(*span) for span in self._spans(chunks)])
