from specx.bench.grouping import Group, by
from tests.bench.benches import made_up


def group(runs, method):
    return Group(method, 1024, [run for run in runs if run.method == method], runs)


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
    assert [round(ratio, 6) for ratio in group(runs, "fast").ratios()] == [3.0, 1.5]
    assert group(runs, "nobody").ratios() == []


def test_the_same_output_is_the_same_tokens():
    runs = [
        made_up("plain", 1),
        made_up("fast", 1),
        made_up("plain", 1, case="b"),
        made_up("fast", 1, case="b", output=(1, 2)),
    ]
    assert group(runs, "fast").same_output() == "1 of 2"
    assert group(runs, "nobody").same_output() is None


def test_speed_is_that_of_decoding():
    assert round(group([made_up("plain", 10)], "plain").speed(), 9) == 10
    assert made_up("plain", 10, decode_s=0.0).tokens_per_second == 0
