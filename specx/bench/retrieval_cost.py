"""The cost of a retrieval on caches of a given shape, without the models that would fill them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.bench.shapes import Shape
from specx.engine.draft_cache import DraftCache
from specx.engine.kv_cache import CacheShape
from specx.engine.runner import runner_for
from specx.engine.stopwatch import Stopwatch
from specx.kernels.chunks import Grid
from specx.kernels.ops import ops_for
from specx.profile import DraftCacheSettings

WARM_UP = 5
REPEATS = 15


@dataclass(frozen=True)
class RetrievalCost:
    """Milliseconds, medians. ``scores_ms``: scoring all chunks and choosing the best of them;
    ``cache_ms``: filling the working cache of the draft with them."""

    scores_ms: float
    cache_ms: float


@dataclass(frozen=True)
class Place:
    """The device and the number format of the caches."""

    device: torch.device
    dtype: torch.dtype


def retrieval_cost(
    target: Shape, draft: Shape, settings: DraftCacheSettings, length: int, place: Place
) -> RetrievalCost:
    """On random caches of ``length`` tokens, with the operators that decoding uses."""
    generator = torch.Generator(place.device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(
            *shape, generator=generator, dtype=place.dtype, device=place.device
        )  # fmt: skip

    # Whatever the number of layers of the target, retrieval reads one of them.
    keys = random(target.num_kv_heads, length, target.head_dim)
    query = random(target.num_heads, target.head_dim)
    lse = torch.zeros(target.num_heads, device=place.device)
    tokens = torch.tensor([length], device=place.device)
    scaling = target.head_dim**-0.5

    grid, ops = Grid(settings.chunk), ops_for(place.device)

    def choose() -> Tensor:
        scores = ops.chunk_scores(query, lse, keys, tokens, scaling, grid)
        return ops.best_chunks(scores, tokens, grid, settings.top_k)

    shape = CacheShape(
        layers=draft.num_layers,
        kv_heads=draft.num_kv_heads,
        head_dim=draft.head_dim,
        dtype=place.dtype,
        device=place.device,
        ops=ops,
    )
    halves = torch.arange(draft.head_dim // 2, device=place.device)
    cache = DraftCache(
        shape, length, 1e4 ** (-2.0 * halves / draft.head_dim), settings.chunk * settings.top_k
    )
    cache.store.storage.copy_(random(*cache.store.storage.shape))
    cache.store.commit(length)
    cache.grid = grid
    chunks = choose()
    return RetrievalCost(
        scores_ms=median_ms(choose, place.device),
        cache_ms=median_ms(lambda: cache.choose(chunks), place.device),
    )


@dataclass(frozen=True, eq=False)
class Timed:
    """Work that runs as a stage of a step."""

    function: Callable[[], object]

    def work(self) -> object:
        return self.function()


def median_ms(work: Callable[[], object], device: torch.device) -> float:
    """Return the median milliseconds of work that is run as the parts of a step are."""
    watch, runner, stage = Stopwatch(device), runner_for(device, fused_layers=False), Timed(work)
    for _ in range(WARM_UP + REPEATS):
        with watch.part("retrieval"):
            runner.run(stage)
    watch.finish()
    return 1e3 * statistics.median(watch.samples["retrieval"][WARM_UP:])
