"""The target at work on one document: prefill, verification, and what its attention looked at."""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.attention.call import AttentionCall, Recorded
from specx.attention.scores import attention_row
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
        self._seen: Recorded | None = None  # queries [Hq, 1, D], lse [Hq, 1] of the last token

    def prefill(self, prompt: Tensor) -> Iterator[PrefillProgress | Tensor]:
        """Read the prompt int64 [L]; progress after each chunk, last the logits [1, V].

        Logits are computed for the last position only.
        """
        chunk = PREFILL_CHUNK[self.model.device.type]
        logits = None
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall("prefill", prefix=start, record=self._record)
            logits = forward(self.model, tokens, positions, self.cache, call, logits_of=1)
            self.cache.commit(len(tokens))
            yield PrefillProgress("target", start + len(tokens), len(prompt))
            self._remember(call, len(tokens) - 1)
        assert logits is not None
        yield self._mask(logits)

    def score(self, tree: TokenTree) -> Tensor:
        """Logits [T, V] after each row of the tree; rows stay scratch until ``keep``."""
        call = AttentionCall(
            "tree", prefix=self.cache.committed, visible=tree.visible(), record=self._record
        )
        positions = self.cache.committed + tree.depths
        logits = forward(self.model, tree.tokens, positions, self.cache, call)
        self._scored = call
        return self._mask(logits)

    def keep(self, path: Path, count: int) -> None:
        """Commit the accepted rows of the tree that was scored last; drop the others."""
        assert self._scored is not None, "keep follows score"
        if len(path.rows) > 1:
            self.cache.keep(path.rows)
        self.cache.commit(count)
        self._remember(self._scored, path.rows[count - 1])

    def stop_watching(self) -> None:
        """Nobody will ask for attention any more."""
        self.watch, self._record = None, frozenset()

    def attention(self) -> Tensor:
        """What the last committed token attended to in the watched layer: [committed], the mean
        over heads of its softmax attention (SpecExtend, cross-model retrieval)."""
        assert self._seen is not None
        assert self.watch is not None
        lse = self._seen.lse
        row = attention_row(
            self._seen.queries[:, 0],
            self.cache.keys_of(self.watch),
            _scaling(self.model, self.watch),
            None if lse is None else lse[:, 0],
        )
        return row.mean(0)

    def _mask(self, logits: Tensor) -> Tensor:
        """Ids outside the tokenizer never win: checkpoints pad their vocabulary."""
        return logits.masked_fill(self._forbidden, -torch.inf)

    def _remember(self, call: AttentionCall, row: int | Tensor) -> None:
        if self.watch is not None:
            seen = call.recorded[self.watch]
            at = torch.as_tensor(row, device=seen.queries.device).reshape(1)
            lse = None if seen.lse is None else seen.lse.index_select(1, at)
            self._seen = Recorded(seen.queries.index_select(1, at), lse)


def _scaling(model: LoadedModel, layer: int) -> float:
    """The factor that a layer's attention multiplies its scores with."""
    scaling: float = model.model.get_decoder().layers[layer].self_attn.scaling
    return scaling
