"""Acceptance and cost of a step as functions of the retrieval settings, fitted by least squares.

With working cache w, chunk c (tokens), n steps between retrievals and input L (tokens):

- acceptance length: a₀ + a₁ log w + a₂ log² w + a₃ log c + a₄ log² c + a₅ log n + a₆ log L;
- seconds of a step: b₀ + b₁ w + b₂ / n + b₃ L.

Logarithms are base 2. The squares let acceptance level off or fall again: a larger working cache
holds more of the right places, and more of the wrong ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

ACCEPTANCE_TERMS = "", "log w", "log² w", "log c", "log² c", "log n", "log L"
COST_TERMS = "", "w", "/ n", "L"


@dataclass(frozen=True, order=True)
class RetrievalSetting:
    """``chunk``: tokens; ``top_k``: chunks in the working cache; ``every``: steps."""

    chunk: int
    top_k: int
    every: int

    @property
    def working(self) -> int:
        """Tokens in the working cache."""
        return self.chunk * self.top_k


@dataclass(frozen=True)
class Sample:
    """What a setting gave at an input length."""

    setting: RetrievalSetting
    length: int
    acceptance: float
    step_s: float

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.acceptance / self.step_s


@dataclass(frozen=True)
class Fit:
    """Coefficients in the order of the formulas above."""

    acceptance_terms: tuple[float, ...]
    cost_terms: tuple[float, ...]

    def acceptance(self, setting: RetrievalSetting, length: int) -> float:
        """Not less than 1: the bonus token is always there."""
        terms = zip(self.acceptance_terms, acceptance_features(setting, length), strict=True)
        return max(1.0, sum(weight * feature for weight, feature in terms))

    def step_s(self, setting: RetrievalSetting, length: int) -> float:
        terms = zip(self.cost_terms, cost_features(setting, length), strict=True)
        return sum(weight * feature for weight, feature in terms)

    def speed(self, setting: RetrievalSetting, length: int) -> float:
        """Tokens per second; 0 where the cost is no positive number, far from what was fitted."""
        seconds = self.step_s(setting, length)
        return self.acceptance(setting, length) / seconds if seconds > 0 else 0.0

    def recommend(self, settings: Sequence[RetrievalSetting], length: int) -> RetrievalSetting:
        """The fastest of the settings."""
        return max(settings, key=lambda setting: self.speed(setting, length))


def fit(samples: Sequence[Sample]) -> Fit:
    """Least squares of both formulas over at least one sample.

    What does not vary among the samples (one length, say) gets no weight.
    """
    return Fit(
        _least_squares(samples, acceptance_features, [sample.acceptance for sample in samples]),
        _least_squares(samples, cost_features, [sample.step_s for sample in samples]),
    )


def acceptance_features(setting: RetrievalSetting, length: int) -> tuple[float, ...]:
    w, c, n = (math.log2(value) for value in (setting.working, setting.chunk, setting.every))
    return 1.0, w, w**2, c, c**2, n, math.log2(length)


def cost_features(setting: RetrievalSetting, length: int) -> tuple[float, ...]:
    return 1.0, float(setting.working), 1 / setting.every, float(length)


def _least_squares(
    samples: Sequence[Sample],
    features: Callable[[RetrievalSetting, int], tuple[float, ...]],
    values: Sequence[float],
) -> tuple[float, ...]:
    rows = [features(sample.setting, sample.length) for sample in samples]
    matrix = torch.tensor(rows, dtype=torch.float64)[:, 1:]  # the constant comes last, by itself
    right = torch.tensor(values, dtype=torch.float64)
    # Around their means, so that what does not vary (one length, say) is left to the constant.
    middle, level = matrix.mean(0), right.mean()
    scale = (matrix - middle).abs().amax(0).clamp(min=1e-9)  # the terms differ by 10⁴
    varied = (matrix - middle) / scale
    slopes = torch.linalg.lstsq(varied, (right - level)[:, None], driver="gelsd").solution[:, 0]
    weights = slopes / scale
    return (float(level - weights @ middle), *weights.tolist())
