"""Find sentences that say again what another one said: boilerplate, form letters.

Two sentences are near-duplicates if the words they share weigh at least ``_ALIKE`` of the words of
both together (the weighted Jaccard similarity of their sets of words). Quantities and years weigh
most, for they tell the rows of a table in words apart. Dates and reference numbers weigh least, and
names a little less than other words: these are what differs in a form letter.

Candidates are found by prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant
2007): two sentences that are alike have a word in common among the rarest words of each, up to a
share of 1 - ``_ALIKE`` of its weight. Only first places are indexed, and of each word only the
latest, so the time grows with the length of the text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

_ALIKE = 0.7
_WEIGHTS = {"quantity": 3.0, "detail": 0.5}  # of other words: 1
_NAME = 0.8
_FEWEST_WORDS = 5  # shorter sentences are duplicates only word for word
_MOST_COMPARED = 10  # sentences with the same rare word

_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
_DATE = (
    r"\d{1,2}(?:st|nd|rd|th)?\.? MONTH(?:,? \d{4})?\b|MONTH \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?\b"
    r"|\d{4}-\d\d-\d\d|\d{1,2}(?P<sep>[./])\d{1,2}(?P=sep)\d{2,4}"
).replace("MONTH", _MONTH)
_CODE = r"\d{5,}|(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]+"  # long numbers, and numbers with letters
_TOKEN = re.compile(
    rf"(?P<detail>\b(?:{_DATE}|(?:{_CODE})(?![.,]?\w)))|(?P<quantity>\d+(?:[.,:/]\d+)*)"
    # In scripts without spaces a letter is a word.
    "|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\\W\\d_]+",
    re.IGNORECASE,
)

_Words = frozenset[str]


def first_places(sentences: Sequence[str]) -> list[int]:
    """Return the places of the sentences that repeat no earlier one, in order."""
    seen = _Seen(sentences)
    return [place for place, sentence in enumerate(sentences) if seen.add(sentence)]


class _Seen:
    """The sentences so far that are no duplicates, by their rarest words."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._frequency: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        for sentence in sentences:
            self._frequency.update(self._words(sentence))
        self._exact: set[_Words | str] = set()
        self._having: defaultdict[str, list[_Words]] = defaultdict(list)

    def add(self, sentence: str) -> bool:
        """Return True and keep the sentence, or False for a duplicate of one that was kept."""
        words = self._words(sentence)
        long = len(words) >= _FEWEST_WORDS
        key = words if long else sentence
        if key in self._exact:
            return False
        rarest = self._rarest(words) if long else []
        if any(self._are_alike(words, other) for word in rarest for other in self._having[word]):
            return False
        self._exact.add(key)
        for word in rarest:
            self._having[word] = [*self._having[word][1 - _MOST_COMPARED :], words]
        return True

    def _words(self, sentence: str) -> _Words:
        """Return the words of a sentence, and remember what each weighs."""
        words = set()
        for match in _TOKEN.finditer(sentence):
            word = match[0].casefold()
            words.add(word)
            if kind := next((kind for kind in _WEIGHTS if match[kind]), None):
                self._weights[word] = _WEIGHTS[kind]
            elif match[0][0].isupper():
                self._weights.setdefault(word, _NAME)
            else:  # what is written small anywhere is no name
                self._weights[word] = 1.0
        return frozenset(words)

    def _rarest(self, words: _Words) -> list[str]:
        ordered = sorted(words, key=lambda word: (self._frequency[word], word))
        room = (1 - _ALIKE) * self._weight(words)
        for count, word in enumerate(ordered, start=1):
            room -= self._weights[word]
            if room < 0:
                return ordered[:count]
        return ordered

    def _are_alike(self, one: _Words, other: _Words) -> bool:
        shared = self._weight(one & other)
        return shared >= _ALIKE * (self._weight(one) + self._weight(other) - shared)

    def _weight(self, words: _Words) -> float:
        return sum(map(self._weights.__getitem__, words))
