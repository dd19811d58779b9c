"""The share of time that no interval covers."""

import pytest

from specx.bench.parts import gaps


@pytest.mark.parametrize(
    ("busy", "share"),
    [
        ([(0, 10)], 0.0),
        ([(5, 10), (0, 5)], 0.0),
        ([(0, 4), (6, 10)], 0.2),
        ([(0, 9), (1, 2), (3, 4), (10, 20)], 0.05),
        ([(100, 103), (101, 104), (108, 110)], 0.4),
    ],
)
def test_gaps_between_intervals(busy, share):
    assert gaps(iter(busy)) == pytest.approx(share)
