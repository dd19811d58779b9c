"""Prompt lookup as a yardstick: what copying n-grams of the text itself would have drafted."""

from collections.abc import Sequence


def lookup_acceptance(
    prompt: Sequence[int],
    output: Sequence[int],
    longest: int = 3,
    drafted: int = 10,
    *,
    in_output: bool = True,
) -> float:
    """Mean tokens a step when each step drafts what followed the same n-gram before, in the prompt
    and, ``in_output``, in what has been written since.

    The n-gram is the end of the text, as long as it is found again up to ``longest`` tokens; of
    several places the last one counts. ``drafted`` tokens are proposed; a step emits those that
    ``output`` bears out, and one more.
    """
    text = list(prompt)
    seen: dict[tuple[int, ...], int] = {}
    for end in range(1, len(text)):  # an n-gram at the very end has nothing behind it
        _note(seen, text, end, longest)
    written = steps = 0
    while written < len(output):
        at = next(
            (seen[key] for n in range(longest, 0, -1) if (key := tuple(text[-n:])) in seen), None
        )
        guess = [] if at is None else text[at : at + drafted]
        rest = output[written:]
        accepted = next(
            (i for i, (a, b) in enumerate(zip(guess, rest, strict=False)) if a != b),
            min(len(guess), len(rest)),
        )
        emitted = rest[: accepted + 1]
        for token in emitted:
            if in_output:
                _note(seen, text, len(text), longest)
            text.append(token)
        written += len(emitted)
        steps += 1
    return len(output) / steps


def _note(seen: dict[tuple[int, ...], int], text: list[int], end: int, longest: int) -> None:
    """The n-grams that end before position ``end`` are followed by what stands there."""
    for n in range(1, min(longest, end) + 1):
        seen[tuple(text[end - n : end])] = end
