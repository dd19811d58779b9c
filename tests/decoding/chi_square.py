"""Pearson's test: do counts come from a distribution?"""

import torch
from torch import Tensor


def p_value(counts: Tensor, probabilities: Tensor) -> float:
    """The probability of counts [n] as far from ``probabilities`` [n] as these, or farther.

    Cells that are expected less than five times are counted as one. 0 where something was seen
    that cannot happen.
    """
    counts, expected = counts.double(), counts.sum() * probabilities.double()
    if counts[expected == 0].sum() > 0:
        return 0.0
    rare = (expected < 5) & (expected > 0)
    common = expected >= 5
    cells, means = counts[common], expected[common]
    if rare.any():
        cells = torch.cat([cells, counts[rare].sum()[None]])
        means = torch.cat([means, expected[rare].sum()[None]])
    statistic = ((cells - means) ** 2 / means).sum()
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))
