"""Sources against leaving passages out."""

import pytest

from specx.bench.experiments.passages import EXPERIMENT, WAYS, judge
from specx.errors import UsageError
from specx.runs.measured_sources import MeasuredSentence
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench

SENTENCE = MeasuredSentence(
    text="x",
    lost=(0.0, 5.0, 1.0),
    attention=((0.1, 0.3, 0.1), (0.4, 0.2, 0.4), (0.5, 0.1, 0.2)),
    common=(0.5, 0.5, 0.0),
)


def test_every_way_ranks_the_passage_that_the_sentence_depends_on() -> None:
    found = judge(SENTENCE, 0)
    assert found.strong
    assert {way: place.rank for way, place in found.places.items()} == {
        "layer": 1,
        "last": 3,
        "all": 3,
        "common": 1.5,
        "chance": 2,
    }
    assert found.places["chance"].within(1) == pytest.approx(1 / 3)
    assert (found.attention, found.share) == (0.3, pytest.approx(0.6))
    assert found.lead == pytest.approx(2 / 3)


def test_a_whole_measurement() -> None:
    bench = tiny_bench("plain", output=16)
    (run,) = EXPERIMENT.measure(bench)
    assert run.facts["sentences"]
    for sentence in run.facts["sentences"]:
        assert set(sentence["places"]) == set(WAYS)
    assert EXPERIMENT.conclude([run]).tables


def test_figures_of_strong_sentences() -> None:
    def sentence(share: float, better: int, *, strong: bool = True) -> dict[str, object]:
        places = dict.fromkeys(WAYS, (better, 1))
        return {"strong": strong, "places": places, "attention": share, "share": 0.5, "lead": 0.5}

    sentences = [sentence(n / 10, int(n < 3)) for n in range(10)]
    facts = {"layer": 1, "sentences": [*sentences, sentence(0.9, 7, strong=False)]}
    findings = EXPERIMENT.conclude([made_up(task="instruct", facts=facts)])
    rows = columns_of(findings.tables[0], "strong sentences", "first", "in the first two")
    assert rows == [(10, pytest.approx(0.7), 1.0)] * len(WAYS)
    (figure,) = findings.figures
    assert figure.series[0].y == pytest.approx((0.0, 0.5, 1.0, 1.0, 1.0))


def test_digests_cite_by_themselves() -> None:
    with pytest.raises(UsageError, match="copies sentences"):
        next(EXPERIMENT.measure(tiny_bench("plain", tasks=("digest",))))
