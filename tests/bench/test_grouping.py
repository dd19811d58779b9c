import pytest

from specx.bench.grouping import Group, by, share_taken
from tests.bench.benches import made_up


def group(runs, method):
    return Group(method, 1024, [run for run in runs if run.method == method], runs)


def test_groups_keep_their_order():
    runs = [made_up("b", 1), made_up("a", 1), made_up("b", 2)]
    assert {method: len(group) for method, group in by(runs, "method").items()} == {"b": 2, "a": 1}
    assert list(by(runs, "method")) == ["b", "a"]


def test_a_speedup_is_the_median_of_pairs():
    """The machine was three times as slow in the second repetition, and in one run of the third."""
    speeds = {"plain": (30, 10, 30), "fast": (60, 20, 20)}
    runs = [
        *(
            made_up(method, speed, repeat=repeat)
            for method, of_method in speeds.items()
            for repeat, speed in enumerate(of_method)
        ),
        made_up("plain", 10, case="b"),
        made_up("fast", 15, case="b"),
        made_up("fast", 99, case="b", repeat=1),  # nothing beside it
        made_up("fast", 99, case="c"),
    ]
    assert [round(ratio, 6) for ratio in group(runs, "fast").ratios()] == [2.0, 1.5]
    assert group(runs, "nobody").ratios() == []


def test_load_that_comes_and_goes_moves_no_ratio():
    """Medians of each method alone would say 6: most runs of plain decoding were slow, but of the
    other method, which was not measured beside the first two, one."""
    speeds = ((10, None), (10, None), (30, 60), (30, 60), (10, 20))
    runs = [
        made_up(method, speed, repeat=repeat)
        for repeat, pair in enumerate(speeds)
        for method, speed in zip(("plain", "fast"), pair, strict=True)
        if speed
    ]
    assert group(runs, "fast").ratio() == pytest.approx(2.0)


def test_end_to_end_is_from_the_prompt_to_the_last_token():
    run = made_up("a", 100, read_s=2.0, prefill_s={"target_prefill": 0.5, "draft_prefill": 0.5})
    assert run.end_to_end == 101 / 4


def test_the_share_of_the_time_is_weighted_by_time():
    runs = [made_up("a", 100, taken=0.2), made_up("a", 50, taken=0.5), made_up("a", 1)]
    assert share_taken(runs) == pytest.approx((0.2 + 2 * 0.5) / 3)
    assert share_taken([made_up("a", 1)]) == 0


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
