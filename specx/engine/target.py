"""The target at work on one document: prefill, verification, and what its attention looked at."""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.engine.accept import Path
from specx.engine.forward import PREFILL_CHUNK, cache_shape, forward
from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.torch.scores import chunk_scores, scaled_scores
from specx.kernels.trees import MAX_ROWS, TokenTree
from specx.models.call import AttentionCall, Watched
from specx.models.load import LoadedModel
from specx.records import PrefillProgress


class Target:
    """A target model with the cache of one document.

    ``watch``: the layer whose queries are kept for retrieval, or None.
    """

    def __init__(self, model: LoadedModel, capacity: int, watch: int | None) -> None:
        self.model = model
        self.cache = PreallocatedCache(cache_shape(model), capacity)
        if "tree" in model.masked:  # there, what nobody has written has a weight of 0, NaN or not
            self.cache.storage.zero_()
        self.watch = watch
        self._last: Tensor | None = None  # row of the watched queries that asked last, int64 [1]
        self._watched: Watched | None = None
        if watch is not None:
            shape, device = (model.num_heads, MAX_ROWS), model.device
            self._watched = Watched(
                watch,
                torch.zeros(*shape, model.head_dim, dtype=model.dtype, device=device),
                torch.zeros(shape, device=device),
            )
            self._last = torch.zeros(1, dtype=torch.int64, device=device)

    def prefill(self, prompt: Tensor) -> Iterator[PrefillProgress | Tensor]:
        """Read the prompt int64 [L], as far as it has not been restored; progress when a chunk is
        launched, last the logits [1, V].

        Logits are computed for the last position only.
        """
        chunk = PREFILL_CHUNK[self.model.device.type]
        logits = None
        for start in range(self.cache.committed, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall("prefill", past=start, watched=self._watched)
            logits = forward(self.model, tokens, positions, self.cache, call, logits_of=1)
            self.cache.commit(len(tokens))
            yield PrefillProgress("target", start + len(tokens), len(prompt))
        assert logits is not None
        if self._watched is not None and self._last is not None:
            # Prefill needs no sums of its own; for the one query that matters they are made here.
            self._last.fill_(min(len(tokens), MAX_ROWS) - 1)
            keys = self.cache.keys_of(self._watched.layer)[:, : len(prompt)]
            scores = scaled_scores(self._query(), keys, self._scaling())
            self._watched.lse.index_copy_(1, self._last, scores.logsumexp(-1)[:, None].float())
        yield logits

    def restore(self, rows: Tensor) -> None:
        """Take the first tokens of the prompt as read: their keys and values
        [layers, 2, Hkv, L, D]. At least one token must be left for ``prefill``."""
        count = rows.shape[3]
        self.cache.storage[:, :, :, :count] = rows
        self.cache.wrote(count)
        self.cache.commit(count)

    def score(self, tree: TokenTree) -> Tensor:
        """Logits [T, V] after each row of the tree; rows stay scratch until ``keep``."""
        length = self.cache.length
        call = AttentionCall(
            "tree",
            past=0,
            prefix=length,
            visible=tree.ancestors()[:, None],
            watched=self._watched,
        )
        positions = self.cache.next_position + tree.depths
        return forward(self.model, tree.tokens, positions, self.cache, call)

    def keep(self, path: Path) -> None:
        """Commit the accepted rows of the tree that was scored last; drop the others."""
        if len(path.rows) > 1:
            self.cache.keep(path.rows)
        self.cache.commit(path.count)
        if self._last is not None:
            self._last.copy_(path.last_row)

    def stop_watching(self) -> None:
        """Nobody will ask for attention any more."""
        self.watch, self._watched, self._last = None, None, None

    def chunk_scores(self, chunk: int, length: Tensor, short: int = 0) -> Tensor:
        """What the last committed token attended to in the watched layer, by chunks of the first
        ``length`` (int64 [1]) tokens: [chunks that fit the cache], −inf beyond the text."""
        assert self._watched is not None
        assert self._last is not None
        lse = self._watched.lse.index_select(1, self._last)[:, 0]
        keys = self.cache.keys_of(self._watched.layer)
        return chunk_scores(self._query(), lse, keys, length, self._scaling(), chunk, short)

    def _query(self) -> Tensor:
        """[Hq, D]: what the last committed token asked the watched layer."""
        assert self._watched is not None
        assert self._last is not None
        return self._watched.queries.index_select(1, self._last)[:, 0]

    def _scaling(self) -> float:
        """The factor that the watched layer multiplies its scores with."""
        layers = self.model.model.get_decoder().layers
        scaling: float = layers[self.watch].self_attn.scaling
        return scaling
