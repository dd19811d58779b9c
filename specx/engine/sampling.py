"""The target's choice of a token from its logits: the most probable one, or a draw."""

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specx.kernels.ops import Ops
from specx.kernels.trees import NO_CHOICE
from specx.profile import GenerationSettings


class Sampler:
    """Chooses tokens by output position, so that every method draws alike.

    The number that decides position i of the output is the i-th of one seeded stream, whatever
    tree position i is reached by. Speculative and plain decoding therefore not only have the same
    distribution: with the same seed they write the same text. ``allowed``: bool [V]; ids outside
    the tokenizer never win, and checkpoints pad their vocabulary. ``limit``: tokens of the output,
    and as many more as trees may reach beyond it.
    """

    def __init__(self, settings: GenerationSettings, allowed: Tensor, limit: int, ops: Ops) -> None:
        self.ops, self.greedy = ops, settings.temperature == 0
        self._forbidden = ~allowed
        self._warpers = _warpers(settings)
        generator = torch.Generator().manual_seed(settings.seed)
        stream = torch.rand(limit, generator=generator, dtype=torch.float64)
        self._uniform = stream.to(allowed.device)

    def choose(self, logits: Tensor, first: Tensor | int, offsets: Tensor) -> Tensor:
        """Choose a token for each row of logits [T, V]: int64 [T].

        ``NO_CHOICE`` where logits are not finite, as in ``Ops.most_probable``.
        ``first + offsets`` (int64 [1], [T]): the place in the output that each row decides.
        """
        if self.greedy:
            return self.ops.most_probable(logits, self._forbidden)
        logits = logits.float().masked_fill(self._forbidden, -torch.inf)
        probabilities = self._warpers(None, logits).softmax(-1).double()
        # Inverse transform sampling, one number a position. The cumulated sum is in float64: a
        # vocabulary of 100,000 adds up more rounding than float32 can hide.
        cumulated = probabilities.cumsum(-1)
        goal = self._uniform[first + offsets][:, None] * cumulated[:, -1:]
        chosen = torch.searchsorted(cumulated, goal, right=True).squeeze(-1)
        return chosen.where(cumulated[:, -1].isfinite(), NO_CHOICE)


def _warpers(settings: GenerationSettings) -> LogitsProcessorList:
    """Return the warpers of transformers' ``generate``, in the same order."""
    warpers = LogitsProcessorList()
    if settings.temperature not in (0, 1):
        warpers.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        warpers.append(TopPLogitsWarper(settings.top_p))
    return warpers
