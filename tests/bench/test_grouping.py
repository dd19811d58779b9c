from specx.bench.grouping import by, same_output, speed, speedups
from tests.bench.benches import made_up


def test_groups_keep_their_order():
    runs = [made_up("b", 1), made_up("a", 1), made_up("b", 2)]
    assert {method: len(group) for method, group in by(runs, "method").items()} == {"b": 2, "a": 1}
    assert list(by(runs, "method")) == ["b", "a"]


def test_a_speedup_compares_medians_on_the_same_prompt():
    runs = [
        *(made_up("plain", speed) for speed in (10, 20, 1000)),
        *(made_up("fast", speed) for speed in (1, 60, 60)),
        made_up("plain", 10, case="b"),
        made_up("fast", 15, case="b"),
        made_up("fast", 99, case="c"),  # nothing to compare with
    ]
    assert [round(ratio, 6) for ratio in speedups(runs, "fast")] == [3.0, 1.5]
    assert speedups(runs, "nobody") == []


def test_the_same_output_is_the_same_tokens():
    runs = [
        made_up("plain", 1),
        made_up("fast", 1),
        made_up("plain", 1, case="b"),
        made_up("fast", 1, case="b", output=(1, 2)),
    ]
    assert same_output(runs, "fast") == "1 of 2"
    assert same_output(runs, "nobody") is None


def test_speed_is_that_of_decoding():
    assert round(speed([made_up("plain", 10)]), 9) == 10
    assert made_up("plain", 10, decode_s=0.0).tokens_per_second == 0
