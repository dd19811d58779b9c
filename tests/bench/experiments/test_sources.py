"""An output token has a source where, and only where, it is certain."""

from specx.bench.experiments.layers import RUN, sources

PROMPT = list(range(100, 150))


def test_a_copied_run_and_nothing_around_it() -> None:
    output = [1, 2, *PROMPT[10 : 10 + RUN + 2], 3]
    assert sources(PROMPT, output) == [None, None, *range(10, 10 + RUN + 2), None]


def test_a_run_that_is_too_short() -> None:
    assert sources(PROMPT, [1, *PROMPT[10 : 9 + RUN], 2]) == [None] * (RUN + 1)


def test_a_run_that_the_prompt_has_twice_or_more() -> None:
    twice = PROMPT[10 : 10 + RUN]
    assert sources([*PROMPT, *twice], twice) == [None] * RUN
    assert sources([*PROMPT, *twice, *twice], twice) == [None] * RUN
    # One token more and it is certain again.
    longer = PROMPT[10 : 11 + RUN]
    assert sources([*PROMPT, *twice], longer) == [None, *range(11, 11 + RUN)]


def test_an_output_shorter_than_a_run() -> None:
    assert sources(PROMPT, PROMPT[:3]) == [None] * 3
