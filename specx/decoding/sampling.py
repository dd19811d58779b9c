"""How the target chooses a token from its logits: the most probable one, or a draw."""

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specx.profile import GenerationSettings


class Sampler:
    """Chooses tokens by output position, so that every method draws alike.

    The number that decides position i of the output is the i-th of one seeded stream, whatever
    tree position i is reached by. Speculative and plain decoding therefore not only have the same
    distribution: with the same seed they write the same text. ``limit``: tokens of the output, and
    as many more as trees may reach beyond it.
    """

    def __init__(self, settings: GenerationSettings, device: torch.device, limit: int) -> None:
        self.greedy = settings.temperature == 0
        self._warpers = _warpers(settings)
        generator = torch.Generator().manual_seed(settings.seed)
        stream = torch.rand(limit, generator=generator, dtype=torch.float64)
        self._uniform = stream.to(device)

    def choose(self, logits: Tensor, positions: Tensor) -> Tensor:
        """logits [T, V]; positions int64 [T], place in the output that each row decides -> [T]."""
        if self.greedy:
            return logits.argmax(-1)
        probabilities = self._warpers(None, logits.float()).softmax(-1).double()
        # Inverse transform sampling, one number a position. The cumulated sum is in float64: a
        # vocabulary of 100,000 adds up more rounding than float32 can hide.
        cumulated = probabilities.cumsum(-1)
        goal = self._uniform[positions][:, None] * cumulated[:, -1:]
        return torch.searchsorted(cumulated, goal, right=True).squeeze(-1)


def _warpers(settings: GenerationSettings) -> LogitsProcessorList:
    """The same warpers, in the same order, as ``generate`` of transformers."""
    warpers = LogitsProcessorList()
    if settings.temperature not in (0, 1):
        warpers.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        warpers.append(TopPLogitsWarper(settings.top_p))
    return warpers
