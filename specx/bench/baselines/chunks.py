"""Cache policies without the target's attention: chunks at random, or by their words."""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.engine.draft_cache import DraftCache
from specx.engine.model_drafter import ModelDrafter
from specx.engine.target import Target
from specx.kernels.chunks import count_chunks
from specx.kernels.trees import Path
from specx.profile import DraftCacheSettings
from specx.records import PrefillProgress

SEED = 0
TURNS = 64  # retrievals after which random choices repeat


def best_of_text(scores: Tensor, cache: DraftCache, top_k: int) -> Tensor:
    """Return the best chunks by ``scores`` [M], of those that the text in ``cache`` reaches, as
    ``Ops.best_chunks`` does."""
    length, grid = cache.store.length, cache.grid
    starts = torch.arange(len(scores), device=length.device) * grid.chunk
    known = scores.masked_fill(starts >= length, -torch.inf)
    return cache.ops.best_chunks(known, length, grid, top_k)


class RandomChunks:
    """Chunks drawn anew at each retrieval, the newest always among them."""

    retrieval_layer: int | None = None

    def __init__(self, settings: DraftCacheSettings, chunks: int, device: torch.device) -> None:
        """``chunks``: as many as the text can have."""
        self.settings = settings
        generator = torch.Generator().manual_seed(SEED)
        self._scores = torch.rand(TURNS, chunks, generator=generator).to(device)
        self._turn = torch.zeros(1, dtype=torch.int64, device=device)

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        scores = self._scores.index_select(0, self._turn % TURNS)[0]
        self._turn += 1
        return best_of_text(scores, cache, self.settings.top_k)


class Lexical:
    """Scores a chunk by the tokens that it shares with the last ``chunk`` tokens of the text.

    Each shared token counts once, by its inverse document frequency ``log((M + 1) / (df + 1))``,
    where df of the M chunks of the prompt have it.
    """

    retrieval_layer: int | None = None

    def __init__(
        self, settings: DraftCacheSettings, vocab_size: int, chunks: int, device: torch.device
    ) -> None:
        """``chunks``: as many as the text can have, and one path more."""
        self.settings = settings
        self._ids = torch.zeros(chunks * settings.chunk, dtype=torch.int64, device=device)
        self._length = torch.zeros(1, dtype=torch.int64, device=device)
        self._rarity = torch.zeros(vocab_size, device=device)

    def begin(self, prompt: Tensor) -> None:
        self._ids[: len(prompt)] = prompt
        self._length.fill_(len(prompt))
        once = self._first_in_chunk()
        found = torch.zeros_like(self._rarity).index_add_(0, self._ids, once)
        chunks = count_chunks(len(prompt), self.settings.chunk)
        self._rarity.copy_(((chunks + 1) / (found + 1)).log())

    def append(self, path: Path) -> None:
        places = self._length + torch.arange(len(path.tokens), device=self._ids.device)
        self._ids.index_copy_(0, places, path.tokens)  # beyond the count they are overwritten
        self._length += path.count

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        chunk = self.settings.chunk
        back = torch.arange(1, chunk + 1, device=self._ids.device)
        recent = self._ids[(self._length - back).clamp(min=0)]
        wanted = torch.zeros_like(self._rarity).index_copy(0, recent, self._rarity[recent])
        shared = wanted[self._ids] * self._first_in_chunk()
        return best_of_text(shared.view(-1, chunk).sum(-1), cache, self.settings.top_k)

    def _first_in_chunk(self) -> Tensor:
        """Return float32 [rows]: 1 where a token of the text comes for the first time in its
        chunk."""
        ids = self._ids.view(-1, self.settings.chunk)
        earlier = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(-1)
        rows = torch.arange(len(self._ids), device=self._ids.device)
        return (~earlier.flatten() & (rows < self._length)).float()


class LexicalDrafter(ModelDrafter):
    """A draft model whose policy is told the text."""

    policy: Lexical

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        self.policy.begin(prompt)
        return super().prefill(prompt, target)

    def commit(self, path: Path) -> None:
        super().commit(path)
        self.policy.append(path)
