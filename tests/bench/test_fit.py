"""The fit finds what made the samples, and says what is best of it."""

import math
from itertools import product

import pytest

from specx.bench.fit import Fit, RetrievalSetting, Sample, fit

SETTINGS = [RetrievalSetting(*s) for s in product((16, 32, 64), (4, 8, 16), (1, 2, 8))]


def acceptance(setting: RetrievalSetting, length: int) -> float:
    """Best at a working cache of 256 tokens and chunks of 32."""
    w, c, n = (math.log2(value) for value in (setting.working, setting.chunk, setting.every))
    return 6 - 0.5 * (w - 8) ** 2 - 0.3 * (c - 5) ** 2 - 0.2 * n - 0.1 * math.log2(length)


def step_s(setting: RetrievalSetting, length: int) -> float:
    return 0.01 + 1e-6 * setting.working + 0.002 / setting.every + 1e-6 * length


def samples(*lengths: int) -> list[Sample]:
    return [Sample(s, n, acceptance(s, n), step_s(s, n)) for s in SETTINGS for n in lengths]


def test_exact_samples_are_met() -> None:
    found = fit(samples(1024, 4096))
    for setting, length in product(SETTINGS, (1024, 2048, 16384)):
        assert found.acceptance(setting, length) == pytest.approx(acceptance(setting, length))
        assert found.step_s(setting, length) == pytest.approx(step_s(setting, length))


def test_one_length_is_enough_for_that_length() -> None:
    found = fit(samples(4096))
    for setting in SETTINGS:
        assert found.acceptance(setting, 4096) == pytest.approx(acceptance(setting, 4096))
        assert found.step_s(setting, 4096) == pytest.approx(step_s(setting, 4096))


def test_what_does_not_vary_gets_no_weight() -> None:
    found = fit(samples(4096))
    assert found.acceptance_terms[-1] == found.cost_terms[-1] == 0.0
    assert found.step_s(SETTINGS[0], 65536) == found.step_s(SETTINGS[0], 4096)


def test_the_fastest_is_recommended() -> None:
    found = fit(samples(1024, 4096)).recommend(SETTINGS, 8192)
    fastest = max(SETTINGS, key=lambda s: acceptance(s, 8192) / step_s(s, 8192))
    assert found == fastest
    assert found.working == 256
    assert found.chunk == 32


def test_far_from_what_was_fitted() -> None:
    nothing = Fit((-9.0, *6 * [0.0]), (-1.0, 0.0, 0.0, 0.0))
    assert nothing.acceptance(SETTINGS[0], 1024) == 1.0
    assert nothing.speed(SETTINGS[0], 1024) == 0.0
