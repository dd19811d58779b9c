"""Where in the prompt an output was copied from."""

from collections.abc import Sequence

RUN = 8  # tokens: a run this long that stands in the prompt once was copied from there


def sources(prompt: Sequence[int], output: Sequence[int]) -> list[int | None]:
    """For each token of the output the place in the prompt that it was copied from, as far as that
    is certain: it is in a run of ``RUN`` tokens that the prompt has exactly once."""
    places: dict[tuple[int, ...], int | None] = {}
    for place in range(len(prompt) - RUN + 1):
        run = tuple(prompt[place : place + RUN])
        places[run] = None if run in places else place
    found: list[int | None] = [None] * len(output)
    for start in range(len(output) - RUN + 1):
        source = places.get(tuple(output[start : start + RUN]))
        if source is not None:
            found[start : start + RUN] = range(source, source + RUN)
    return found
