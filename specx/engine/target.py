"""The target at work on one document: prefill, verification, and its attention for retrieval."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from specx.engine.forward import cache_shape, forward, in_chunks, rows_ahead
from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.ancestors import AncestorMask
from specx.kernels.chunks import Grid
from specx.kernels.torch.scores import scaled_scores
from specx.kernels.trees import MAX_ROWS, Path, TokenTree
from specx.models.call import RetrievalLayer
from specx.models.features import Features, FeatureSource, watch_features
from specx.models.load import LoadedModel
from specx.records import PrefillProgress


class Target:
    """A target model with the cache of one document.

    ``retrieval``: the layer whose queries are kept for retrieval, or None; ``last_row`` int64 [1]:
    the row of these queries that belongs to the last committed token. ``features``: the hidden
    states that a head reads, or None.
    """

    def __init__(self, model: LoadedModel, capacity: int, retrieval_layer: int | None) -> None:
        self.model, self.ops = model, model.ops
        self.cache = PreallocatedCache(cache_shape(model), capacity, rows_ahead(model.device))
        self.last_row = torch.zeros(1, dtype=torch.int64, device=model.device)
        self.features: Features | None = None
        self.retrieval: RetrievalLayer | None = None
        if retrieval_layer is not None:
            heads, dim = model.query_shape(retrieval_layer)
            shape, device = (heads, MAX_ROWS), model.device
            self.retrieval = RetrievalLayer(
                retrieval_layer,
                torch.zeros(*shape, dim, dtype=model.dtype, device=device),
                torch.zeros(shape, device=device),
            )

    def keep_features(self, source: FeatureSource) -> None:
        """Note hidden states from now on, of each chunk of the prompt and of each tree."""
        model, rows = self.model, rows_ahead(self.model.device)
        if model.decoder_spec is None:
            watch_features(model.model, source)
        self.features = Features(source, rows, model.dtype, model.device)

    def begin(self) -> None:
        """Forget all of the text, for another one."""
        self.cache.clear()
        self.last_row.zero_()
        if self.features is not None:
            self.features.begin()

    def prefill(self, prompt: Tensor) -> Iterator[PrefillProgress | Tensor]:
        """Read the prompt int64 [L] behind what is in the cache already.

        Yields progress when a chunk is launched, and last the logits [1, V] of the last position.
        """
        read, begin, last = partial(self._read, prompt), self.cache.committed, 0
        logits = None
        chunks = in_chunks(read, begin, len(prompt), self.model.device)
        for end, logits in chunks:  # noqa: B007 - the last ones are wanted
            if self.features is not None:
                last_position = torch.full_like(self.last_row, end - 1)
                self.features.keep(last_position - begin, last_position)
            last, begin = end - begin, end
            self.cache.commit(last)
            yield PrefillProgress("target", end, len(prompt))
        assert logits is not None
        if self.retrieval is not None:
            self._note_lse(self.retrieval, len(prompt), min(last, MAX_ROWS) - 1)
        yield logits

    def _read(self, prompt: Tensor, start: int, end: int) -> Tensor:
        """Read a part of the prompt; return the logits [1, V] of its last position."""
        call = self.model.prefill_call(
            ops=self.ops,
            mapping=self.cache.mapping(end - start),
            retrieval=self.retrieval,
            features=self.features,
            past=start,
        )
        positions = torch.arange(start, end, device=prompt.device)
        return forward(self.model, prompt[start:end], positions, self.cache, call, logits_of=1)

    def _note_lse(self, retrieval: RetrievalLayer, length: int, row: int) -> None:
        """Note the log-sum-exp of the last token, which prefill does not compute."""
        self.last_row.fill_(row)
        keys = self.cache.keys_of(retrieval.layer)[:, :length]
        scores = scaled_scores(self._query(retrieval), keys, self._scaling(retrieval))
        retrieval.lse.index_copy_(1, self.last_row, scores.logsumexp(-1)[:, None].float())

    def verify(self, tree: TokenTree) -> Tensor:
        """Return the logits [T, V] after each row of the tree.

        The rows lie behind the text until ``keep``.
        """
        rows = tree.nodes + 1
        call = self.model.tree_call(
            ops=self.ops,
            mapping=self.cache.mapping(rows),
            retrieval=self.retrieval,
            features=self.features,
            prefix=self.cache.length,
            mask=AncestorMask(tree.ancestors()[:, None], rows),
        )
        positions = self.cache.next_position + tree.depths
        return forward(self.model, tree.tokens, positions, self.cache, call)

    def keep(self, path: Path) -> None:
        """Commit the accepted rows of the tree that was verified last; drop the others."""
        if path.rows.shape[0] > 1:
            self.cache.keep(path.rows)
        if self.features is not None:
            self.features.keep(path.rows, self.cache.length)
        self.cache.commit(path.count)
        if self.retrieval is not None:
            self.last_row.copy_(path.last_row)

    def stop_retrieval(self) -> None:
        """Keep no more queries and features: nobody will ask for them again."""
        self.retrieval = self.features = None

    def chunk_scores(self, grid: Grid, length: Tensor) -> Tensor:
        """Return the last committed token's attention, in the retrieval layer, to each chunk.

        ``length`` int64 [1]: tokens that count. Returns [chunks that fit the cache], −inf beyond.
        """
        retrieval = self.retrieval
        assert retrieval is not None
        lse = retrieval.lse.index_select(1, self.last_row)[:, 0]
        keys, scaling = self.cache.keys_of(retrieval.layer), self._scaling(retrieval)
        return self.ops.chunk_scores(self._query(retrieval), lse, keys, length, scaling, grid)

    def _query(self, retrieval: RetrievalLayer) -> Tensor:
        """Return the query of the last committed token in the retrieval layer: [Hq, D]."""
        return retrieval.queries.index_select(1, self.last_row)[:, 0]

    def _scaling(self, retrieval: RetrievalLayer) -> float:
        """Return the factor that the retrieval layer multiplies its scores with."""
        return self.model.scaling_of(retrieval.layer)
