"""Where sentences begin and end in the token ids of a prompt."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from specx.documents.sentences import split_sentences
from specx.prompts.detokenize import Detokenizer


def sentence_numbers(tokenizer: Any, ids: Sequence[int], longest: int) -> list[int]:
    """For each token the number of its sentence, counted from 0.

    An added token (a paragraph's marker, the end of a turn) begins a sentence, several in a row
    begin one. What has more than ``longest`` tokens is cut after so many.
    """
    added = set(tokenizer.added_tokens_decoder)
    numbers: list[int] = []
    for stretch in _stretches(ids, added):
        for size in _sizes(tokenizer, stretch):
            first = numbers[-1] + 1 if numbers else 0
            numbers += [first + place // longest for place in range(size)]
    return numbers


def _stretches(ids: Sequence[int], added: set[int]) -> Iterator[Sequence[int]]:
    """The ids, cut in front of added tokens."""
    starts = [0]
    for place, (before, token) in enumerate(pairwise(ids), start=1):
        if token in added and before not in added:
            starts.append(place)
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        yield ids[start:end]


def _sizes(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Tokens of each sentence of one stretch.

    Texts are compared by their letters: splitting into sentences normalizes white space.
    """
    detokenizer = Detokenizer(tokenizer)
    before = [0]
    for token in ids:
        before.append(before[-1] + _letters(detokenizer.feed([token])))
    ends = list(accumulate(map(_letters, split_sentences(detokenizer.text))))
    sizes = [0] * max(1, len(ends))
    for letters in before[:-1]:
        sizes[min(bisect_right(ends, letters), len(sizes) - 1)] += 1
    return [size for size in sizes if size]


def _letters(text: str) -> int:
    return sum(not character.isspace() for character in text)
