"""The time that a part of a step cannot be faster than.

A floor is the bytes that a part has to read, over the bandwidth that a copy reaches in the same
run, or its products over the rate that a large product reaches.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from specx.engine.methods import Pair
from specx.models.load import LoadedModel
from specx.profile import Profile, TreeSettings


@dataclass(frozen=True)
class Ceilings:
    """The device at its best: bytes/s of a copy, read and written; flop/s in bf16."""

    bandwidth: float
    matmul: float


def measure_ceilings(device: torch.device) -> Ceilings:
    """Time a copy of 4 GB, and the product of two matrices of 8192 x 8192 random numbers."""
    source = torch.empty(2**31, dtype=torch.bfloat16, device=device).normal_()
    target = torch.empty_like(source)
    copy = _median_seconds(lambda: target.copy_(source))
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = _median_seconds(lambda: a @ b)
    return Ceilings(2 * 2**32 / copy, 2 * 8192**3 / product)


def _median_seconds(work: Callable[[], object], repeats: int = 10) -> float:
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times[3:])


def read_bytes(model: LoadedModel) -> int:
    """Return the bytes of weights that a forward pass reads: all but the rows of the embedding."""
    embedding = model.model.get_input_embeddings().weight
    tied = embedding is model.model.get_output_embeddings().weight
    total = sum(weight.nbytes for weight in model.model.parameters())
    return total - (0 if tied else embedding.nbytes)


def cache_bytes(model: LoadedModel, rows: int) -> int:
    return 2 * model.num_layers * model.num_kv_heads * model.head_dim * rows * model.dtype.itemsize


def floors(
    pair: Pair, profile: Profile, ceilings: Ceilings, prompt: int, *, drafts: bool
) -> dict[str, float]:
    """Return the ms that parts of a step, and prefill, take at least behind ``prompt`` tokens.

    ``drafts``: the draft of the pair grows a tree of ``profile.tree`` at each step.
    """
    target, draft = pair.target, pair.draft
    cached = cache_bytes(target, prompt)
    head = target.model.get_output_embeddings().weight.nbytes
    body = (read_bytes(target) - head) / target.dtype.itemsize
    # A causal text attends to half of itself: two products of prompt² / 2 rows of a head.
    attention = 2 * target.num_layers * target.num_heads * target.head_dim * prompt**2
    found = {
        "target_prefill": (2 * body * prompt + attention) / ceilings.matmul,
        "verification": (read_bytes(target) + cached) / ceilings.bandwidth,
    }
    if drafts and draft is not None and isinstance(profile.tree, TreeSettings):
        working = profile.draft_cache.working_tokens or prompt
        level = read_bytes(draft) + cache_bytes(draft, working)
        found["drafting"] = profile.tree.depth * level / ceilings.bandwidth
    if drafts and profile.draft_cache.policy == "cross-model":  # it reads the keys of a layer
        found["retrieval"] = cached / target.num_layers / 2 / ceilings.bandwidth
    return {part: 1e3 * seconds for part, seconds in found.items()}
