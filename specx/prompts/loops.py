"""Noticing that a text repeats itself, token by token and sentence by sentence."""

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from specx.documents.words import CHARACTER, count_words

LONGEST_PERIOD = 256  # tokens: a long paragraph
FEWEST_COPIES = 3  # of a period, one behind the other
FEWEST_TOKENS = 64  # that all copies have together: rules, leaders and rows of a table have less
RETURNS = 3  # a sentence that stands in a text so often is a loop
# Of such a sentence; shorter ones are labels and entries of lists. The characters count where each
# of them is a word.
FEWEST_WORDS, FEWEST_CHARACTERS = 6, 12
# Words, or characters of words without spaces, that a text in own words has in a row only once.
PASSAGE_WORDS, PASSAGE_CHARACTERS = 7, 14

_PERIODS = np.arange(1, LONGEST_PERIOD + 1)
_WORD = re.compile(rf"{CHARACTER.pattern}|(?:(?!{CHARACTER.pattern})\w)+")
_NUMBER = re.compile(r"\W*(?:\d+(?:\.\d+)*[.):]+\s+)?")  # of an item or a section, and its bullet


def copies(period: int) -> int:
    """Return how many copies of so many tokens, one behind the other, are a loop."""
    return max(FEWEST_COPIES, -(-FEWEST_TOKENS // period))


# A token that equals the one a period before it adds to the run; the first copy is no run.
_LONGEST_RUNS = np.array([period * (copies(period) - 1) for period in _PERIODS.tolist()])


class LoopDetector:
    """Finds the first place at which a text ends in enough copies of one period.

    It sees token ids alone, in order. A token costs the same however long the text is.
    """

    def __init__(self) -> None:
        self._tokens = np.full(8 * LONGEST_PERIOD, -1)  # the latest first, from ``_first`` on
        self._first = len(self._tokens) - LONGEST_PERIOD
        # For each period how many of the last tokens equal the one that far before them.
        self._runs = np.zeros_like(_PERIODS)

    def add(self, token: int) -> int | None:
        """Take the next token.

        Return None, or how many tokens at the end of the text only repeat what is before them.
        """
        before = self._tokens[self._first : self._first + LONGEST_PERIOD]
        self._runs += 1
        self._runs *= before == token
        if self._first == 0:
            self._first = len(self._tokens) - LONGEST_PERIOD
            self._tokens[self._first :] = before
        self._first -= 1
        self._tokens[self._first] = token
        looping = self._runs >= _LONGEST_RUNS
        return int(self._runs[looping.argmax()]) if looping.any() else None


class SentenceMemory:
    """Remembers the sentences of a text, and notices one that comes back too often.

    A loop of a model rarely has an exact period: it counts (``2. …``, ``3. …``), or begins its
    sentences in other words. So a sentence may return once, numbers in front of it aside, and
    seven words of a sentence in a row not at all.
    """

    def __init__(self) -> None:
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._passages: set[tuple[str, ...]] = set()

    def add(self, sentence: str, start: int) -> int | None:
        """Take the next sentence, which begins at the character ``start`` of the text.

        Return None, or where sentences begin that have been there: this one, or itself before.
        """
        words = " ".join(_NUMBER.sub("", sentence, count=1).split())
        if len(words) < FEWEST_CHARACTERS or count_words(words) < FEWEST_WORDS:
            return None
        places, passages = self._places[words], set(_passages(words))
        places.append(start)
        returns = not self._passages.isdisjoint(passages)
        self._passages |= passages
        return places[1] if len(places) == RETURNS else start if returns else None


def _passages(sentence: str) -> Iterator[tuple[str, ...]]:
    """Yield all runs of words of a sentence that are long enough to be known again."""
    words = _WORD.findall(sentence.casefold())
    for end, word in enumerate(words, start=1):
        count = PASSAGE_CHARACTERS if CHARACTER.match(word) else PASSAGE_WORDS
        if end >= count:
            yield tuple(words[end - count : end])
