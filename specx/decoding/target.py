"""The target at work on one document: prefill, verification, and what its attention looked at."""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.attention.call import AttentionCall
from specx.attention.scores import chunk_scores, scaled_scores
from specx.caches.preallocated import PreallocatedCache
from specx.decoding.accept import Path
from specx.decoding.forward import cache_shape, forward
from specx.decoding.tree import TokenTree
from specx.models.load import LoadedModel
from specx.records import PrefillProgress

PREFILL_CHUNK = {"cpu": 1024, "cuda": 4096}  # tokens: bounds the memory of activations


class Target:
    """A target model with the cache of one document.

    ``watch``: the layer whose queries are kept for retrieval, or None.
    """

    def __init__(
        self, model: LoadedModel, allowed: Tensor, capacity: int, watch: int | None
    ) -> None:
        self.model = model
        self.cache = PreallocatedCache(cache_shape(model), capacity)
        self.watch = watch
        self._forbidden = ~allowed
        self._record: frozenset[int] = frozenset() if watch is None else frozenset({watch})
        self._scored: AttentionCall | None = None  # of the tree that waits to be kept
        # What the last token asked the watched layer; written in place, step by step.
        heads = model.num_heads
        self._query = torch.zeros(heads, model.head_dim, dtype=model.dtype, device=model.device)
        self._lse = torch.zeros(heads, dtype=torch.float32, device=model.device)

    def prefill(self, prompt: Tensor) -> Iterator[PrefillProgress | Tensor]:
        """Read the prompt int64 [L]; progress after each chunk, last the logits [1, V].

        Logits are computed for the last position only.
        """
        chunk = PREFILL_CHUNK[self.model.device.type]
        logits = None
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall("prefill", past=start, record=self._record)
            logits = forward(self.model, tokens, positions, self.cache, call, logits_of=1)
            self.cache.commit(len(tokens))
            yield PrefillProgress("target", start + len(tokens), len(prompt))
        assert logits is not None
        if self.watch is not None:
            seen = call.recorded[self.watch].queries[:, -1]
            keys = self.cache.keys_of(self.watch)[:, : len(prompt)]
            scores = scaled_scores(seen, keys, _scaling(self.model, self.watch))
            self._query.copy_(seen)
            self._lse.copy_(scores.logsumexp(-1))
        yield self._mask(logits)

    def score(self, tree: TokenTree) -> Tensor:
        """Logits [T, V] after each row of the tree; rows stay scratch until ``keep``."""
        length = self.cache.length
        call = AttentionCall(
            "tree",
            past=0,
            prefix=length,
            visible=tree.ancestors()[:, None],
            record=self._record,
        )
        logits = forward(self.model, tree.tokens, length + tree.depths, self.cache, call)
        self._scored = call
        return self._mask(logits)

    def keep(self, path: Path) -> None:
        """Commit the accepted rows of the tree that was scored last; drop the others."""
        assert self._scored is not None, "keep follows score"
        if len(path.rows) > 1:
            self.cache.keep(path.rows)
        self.cache.commit(path.count)
        if self.watch is not None:
            seen, last = self._scored.recorded[self.watch], path.rows[path.count[None] - 1]
            assert seen.lse is not None
            self._query.copy_(seen.queries.index_select(1, last)[:, 0])
            self._lse.copy_(seen.lse.index_select(1, last)[:, 0])

    def stop_watching(self) -> None:
        """Nobody will ask for attention any more."""
        self.watch, self._record = None, frozenset()

    def chunk_scores(self, chunk: int, length: Tensor) -> Tensor:
        """What the last committed token attended to in the watched layer, by chunks of the first
        ``length`` (int64 [1]) tokens: [chunks that fit the cache], −inf beyond the text."""
        assert self.watch is not None
        keys, scaling = self.cache.keys_of(self.watch), _scaling(self.model, self.watch)
        return chunk_scores(self._query, self._lse, keys, length, scaling, chunk)

    def _mask(self, logits: Tensor) -> Tensor:
        """Ids outside the tokenizer never win: checkpoints pad their vocabulary."""
        return logits.masked_fill(self._forbidden, -torch.inf)


def _scaling(model: LoadedModel, layer: int) -> float:
    """The factor that a layer's attention multiplies its scores with."""
    scaling: float = model.model.get_decoder().layers[layer].self_attn.scaling
    return scaling
