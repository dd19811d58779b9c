import pytest

from specx.bench.grouping import headline
from tests.bench.benches import made_up

OTHER = tuple(range(1, 102))


def told(runs) -> str:
    text, withheld = headline(runs)
    assert not withheld
    return text


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), "specextend+lookup 3.1 × plain at 4K, same text"),
        (("lookup",), "lookup 4.4 × plain at 4K, same text; specextend+lookup 3.1 ×"),
        (("prompt-lookup",), "prompt-lookup 4.4 × plain at 4K, same text; specextend+lookup 3.1 ×"),
    ],
)
def test_the_method_that_won_at_the_longest_length(others: tuple[str, ...], expected: str) -> None:
    runs = [
        *(
            made_up(method, 10 * speed, length=1024)
            for method, speed in (("plain", 1), ("tree", 9))
        ),
        made_up("specextend", 50, length=1024),
        made_up("plain", 10, length=4096),
        made_up("specextend", 21, length=4096),
        made_up("specextend+lookup", 31, length=4096),
        *(made_up(method, 44, length=4096) for method in others),
    ]
    assert told(runs) == expected
    assert told(list(reversed(runs))) == told(runs)


def test_end_to_end_is_told_and_who_wins_there() -> None:
    """100 tokens decoded in 10, 1 and 2 s behind a prompt read in 1 s, which one draft reads in 9 s
    and another in none."""
    runs = [
        made_up("plain", 10, read_s=1.0, prefill_s={"target_prefill": 0.1}),
        made_up("specextend", 100, read_s=1.0, prefill_s={"draft_prefill": 9.1}),
        made_up("lookup", 50, read_s=1.0, prefill_s={"target_prefill": 0.1}),
    ]
    assert told(runs) == (
        "specextend 10 × plain at 1K, 1.0 × end to end, same text; lookup 5.0 ×, 3.6 × end to end"
    )


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (((), (), ()), "same text"),
        ((OTHER, (), ()), "same text for 2 of 3 prompts"),
        ((OTHER, OTHER, OTHER), "not the same text"),
    ],
)
def test_it_says_if_the_text_was_the_same(outputs: tuple[tuple[int, ...], ...], text: str) -> None:
    runs = []
    for case, output in zip("abc", outputs, strict=True):
        plain = made_up("plain", 10, case=case)
        fast = made_up("specextend", 5, case=case)
        runs += [plain, made_up("specextend", 5, case=case, output=output) if output else fast]
    assert told(runs) == f"specextend 0.50 × plain at 1K, {text}"


def test_of_several_tasks_the_first() -> None:
    runs = [
        made_up(method, speed, task=task)
        for task, speeds in (("digest", (1, 2, 3)), ("control", (1, 9, 9)))
        for method, speed in zip(("plain", "tree", "streaming"), speeds, strict=True)
    ]
    assert told(runs) == "streaming 3.0 × plain at 1K, digest, same text"


def test_without_a_speedup_nothing_is_said() -> None:
    assert headline([]) == ("", "")
    assert headline([made_up("specextend", 1)]) == ("", "")
    assert headline([made_up("plain", 1)]) == ("", "")


def rounds(*shares: float | None, length: int = 1024):
    """Repetitions in which others took these shares of the time; the ratio is 2, and 9 where they
    took any."""
    return [
        made_up(method, speed, repeat=repeat, taken=taken, length=length)
        for repeat, taken in enumerate(shares)
        for method, speed in (("plain", 1), ("specextend", 9 if taken else 2))
    ]


@pytest.mark.parametrize(
    ("shares", "percent"),
    [((0.0, 0.0, 0.0), None), ((None, None), None), ((0.48,), "48%"), ((0.0, 0.0, 0.6), "16%")],
)
def test_withheld_where_others_took_more_than_a_tenth_of_the_time(
    shares: tuple[float | None, ...], percent: str | None
) -> None:
    text, withheld = headline(rounds(*shares))
    if percent is None:
        assert (text, withheld) == ("specextend 2.0 × plain at 1K, same text", "")
    else:
        assert not text
        assert withheld.startswith(f"No headline: other processes took {percent} of the time")


def test_a_disturbed_repetition_does_not_count_where_others_took_less_in_all() -> None:
    shares = (0.0,) * 8 + (0.3,)
    assert told(rounds(*shares)) == "specextend 2.0 × plain at 1K, same text"


def test_load_at_another_length_is_not_behind_it() -> None:
    assert told([*rounds(0.9), *rounds(0.0, length=4096)]).endswith("at 4K, same text")
    assert headline([*rounds(0.0), *rounds(0.9, length=4096)])[1]
