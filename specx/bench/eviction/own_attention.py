"""Eviction by the draft's own attention."""

import torch
from torch import Tensor

from specx.bench.eviction.choice import best_of_text
from specx.engine.accept import Path
from specx.engine.draft_cache import DraftCache
from specx.engine.target import PREFILL_CHUNK, Target
from specx.kernels.chunks import chunk_rows, count_chunks
from specx.models.call import Watched
from specx.models.load import LoadedModel
from specx.profile import DraftCacheSettings


class OwnAttention:
    """The chunks that the draft itself has attended to most (H2O, by chunks).

    Attention of the draft's last layer, mean over heads, is summed up for each chunk: of the last
    queries of the prompt over everything, and from then on of the emitted tokens of the step before
    each retrieval over what the draft works on. What has been evicted gathers no more attention, so
    it hardly ever returns; that is what distinguishes eviction from retrieval.
    """

    watch: int | None = None

    def __init__(self, settings: DraftCacheSettings, draft: LoadedModel, rows: int) -> None:
        """``rows``: the most tokens that are emitted in one step."""
        self.settings = settings
        heads, device = draft.num_heads, draft.device
        queries = torch.zeros(heads, rows, draft.head_dim, dtype=draft.dtype, device=device)
        self.watched = Watched(
            draft.num_layers - 1, queries, torch.zeros(heads, rows, device=device)
        )
        layer = draft.model.get_decoder().layers[self.watched.layer]
        self._scaling: float = layer.self_attn.scaling
        self._read = torch.zeros((), dtype=torch.int64, device=device)
        self._pending = torch.zeros((), dtype=torch.int64, device=device)
        self._mass: Tensor | None = None  # of each chunk, float32 [M]
        self._places: Tensor | None = None  # row of the text of each working row, int64 [capacity]

    def begin(self, prompt: Tensor) -> None:
        """Nothing to do: the draft's queries are watched while it reads."""

    def append(self, path: Path) -> None:
        # The draft reads what is emitted here with its next tree.
        self._read.copy_(self._pending)
        self._pending.copy_(path.count)

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        if self._mass is None or self._places is None:
            self._mass = self._mass_of_prompt(cache)
        else:
            chunks = (self._places // self.settings.chunk).clamp(max=len(self._mass) - 1)
            self._mass.index_add_(0, chunks, self._mass_of_step(cache))
        chosen = best_of_text(self._mass, cache, self.settings.top_k)
        self._work_on(chosen, cache)
        return chosen

    def begin_with(self, chosen: Tensor, cache: DraftCache) -> None:
        """Right after the prompt was read the draft works on chunks that others have chosen."""
        self._mass = self._mass_of_prompt(cache)
        self._work_on(chosen, cache)

    def _work_on(self, chosen: Tensor, cache: DraftCache) -> None:
        rows = chunk_rows(chosen, cache.grid)
        places = _places(rows, cache.store.length, cache.working.capacity)
        if self._places is None:
            self._places = places
        else:
            self._places.copy_(places)

    def _mass_of_prompt(self, cache: DraftCache) -> Tensor:
        """[M]: what the last queries of the prompt attended to."""
        length, chunk = cache.store.committed, self.settings.chunk
        rows = self.watched.queries.shape[1]
        # The last piece of the prompt may be shorter than the queries that are kept.
        kept = min(rows, (length - 1) % PREFILL_CHUNK[cache.store.storage.device.type] + 1)
        scores = self._scores(cache.store.keys_of(self.watched.layer)[:, :length])[:, :kept]
        places = torch.arange(length, device=scores.device)
        hidden = places > places[length - kept :, None]
        mass = scores.masked_fill(hidden, -torch.inf).softmax(-1).mean(0).sum(0)
        chunks = count_chunks(cache.store.capacity, chunk)
        padded = torch.nn.functional.pad(mass, (0, chunks * chunk - length))
        return padded.view(chunks, chunk).sum(-1)

    def _mass_of_step(self, cache: DraftCache) -> Tensor:
        """[capacity of the working view]: what the tokens read last attended to."""
        working = cache.working
        scores = self._scores(working.keys_of(self.watched.layer))
        row = torch.arange(scores.shape[1], device=scores.device)[:, None]
        place = torch.arange(scores.shape[2], device=scores.device)
        seen = (row < self._read) & (place <= working.length - self._read + row)
        weights = (scores - self.watched.lse[:, :, None]).exp()
        return weights.masked_fill(~seen, 0.0).mean(0).sum(0)

    def _scores(self, keys: Tensor) -> Tensor:
        """keys [Hkv, L, D] -> float32 (or wider) [Hq, R, L]."""
        queries = self.watched.queries
        heads, rows, dim = queries.shape
        packed = queries.reshape(keys.shape[0], -1, dim)
        wide = torch.promote_types(queries.dtype, torch.float32)
        scores = packed.to(wide) @ keys.to(wide).transpose(-1, -2) * self._scaling
        return scores.view(heads, rows, -1)


def _places(chosen: Tensor, length: Tensor, capacity: int) -> Tensor:
    """Row of the text of each of ``capacity`` working rows, int64: the chosen ones that the text
    reaches, and behind them what is appended to a text of ``length`` (int64 [1]) tokens."""
    place = torch.arange(capacity, device=length.device)
    filled = (chosen < length).sum()
    copied = chosen[place.clamp(max=len(chosen) - 1)]
    return torch.where(place < filled, copied, length + place - filled)
