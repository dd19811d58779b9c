import pytest

from specx.bench.experiments.hybrid import EXPERIMENT, HYBRID, MASKED, threshold
from specx.bench.runs import Run
from tests.bench.experiments.benches import made_run, tiny_bench


def runs_of(masked_ms: dict[int, float]) -> list[Run]:
    """Hybrid verification takes 2 ms at every length."""
    return [
        made_run(method, length, parts_ms={"verification": ms})
        for length, masked in masked_ms.items()
        for method, ms in ((HYBRID, 2.0), (MASKED, masked))
    ]


@pytest.mark.parametrize(
    ("speedups", "found"),
    [
        ({1024: 0.5, 4096: 2.0}, 2048),  # in the middle of both logarithms
        ({1024: 0.5, 2048: 2.0, 4096: 0.5, 8192: 2.0}, 4096 * 2**0.5),  # the last crossing
        ({1024: 0.5, 4096: 0.9}, None),
        ({1024: 1.5, 4096: 2.0}, 1024),
        ({1024: 1.0, 2048: 2.0}, 1024),
    ],
)
def test_threshold(speedups: dict[int, float], found: float | None) -> None:
    assert threshold(speedups) == (None if found is None else pytest.approx(found))


@pytest.mark.parametrize(
    ("masked_ms", "sentence"),
    [
        (
            {1024: 1.0, 4096: 4.0, 16384: 8.0},
            "Digest: from 4K on, hybrid attention verifies faster than masked attention (4 × at "
            "16K); the threshold lies at about 2048 tokens (interpolated), below the paper's 4K.",
        ),
        (
            {4096: 1.0, 16384: 4.0},
            "Digest: at 16K, hybrid attention verifies faster than masked attention (2 × at 16K); "
            "the threshold lies at about 8192 tokens (interpolated), above the paper's 4K.",
        ),
        (
            {1024: 3.0, 4096: 4.0},
            "Digest: at every length, hybrid attention verifies faster than masked attention (2 × "
            "at 4K); if there is a threshold, it lies below 1K.",
        ),
        (
            {1024: 1.0, 4096: 1.0},
            "Digest: at no length, hybrid attention verifies faster than masked attention (0.5 × "
            "at 4K); no threshold was found.",
        ),
    ],
)
def test_sentences(masked_ms: dict[int, float], sentence: str) -> None:
    assert EXPERIMENT.conclude(runs_of(masked_ms)).sentences == (sentence,)


def test_measured_and_concluded() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench(200)))
    assert [run.method for run in runs] == [HYBRID, MASKED]
    (row,) = EXPERIMENT.conclude(runs).tables[0].rows
    assert row[2:4] == tuple(run.parts_ms["verification"] for run in runs)
    (row,) = EXPERIMENT.conclude(runs[:1]).tables[0].rows
    assert row[3:] == (None, None)
    assert EXPERIMENT.conclude(runs[:1]).sentences == ()
