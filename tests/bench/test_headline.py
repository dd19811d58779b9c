import pytest

from specx.bench.headline import headline
from tests.bench.benches import made_up

OTHER = tuple(range(1, 102))


def test_the_fastest_of_ours_at_the_longest_length() -> None:
    runs = [
        *(
            made_up(method, 10 * speed, length=1024)
            for method, speed in (("plain", 1), ("tree", 9))
        ),
        made_up("specextend", 50, length=1024),
        made_up("plain", 10, length=4096),
        made_up("specextend", 21, length=4096),
        made_up("specextend+lookup", 31, length=4096),
        made_up("prompt-lookup", 44, length=4096),
    ]
    assert headline(runs) == "specextend+lookup 3.1 × plain at 4K, same text"
    assert headline(list(reversed(runs))) == headline(runs)


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
    assert headline(runs) == f"specextend 0.50 × plain at 1K, {text}"


def test_of_several_tasks_the_first_and_of_others_the_fastest() -> None:
    runs = [
        made_up(method, speed, task=task)
        for task, speeds in (("digest", (1, 2, 3)), ("control", (1, 9, 9)))
        for method, speed in zip(("plain", "tree", "streaming"), speeds, strict=True)
    ]
    assert headline(runs) == "streaming 3.0 × plain at 1K, digest, same text"


def test_without_a_speedup_nothing_is_said() -> None:
    assert headline([]) == ""
    assert headline([made_up("specextend", 1)]) == ""
    assert headline([made_up("plain", 1)]) == ""
