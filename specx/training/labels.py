"""Choose the paragraphs that a digest should quote: the labels of the training documents.

The rule is classical extractive summarization: word importance with a discount for words that were
quoted before (SumBasic), and location (Edmundson 1969). It judges only the lead sentence, because
only that is quoted. It takes one paragraph from each section, so that a small model can learn it:
the model writes its digest in document order, and every choice is among neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

MAX_LEAD = 80  # tokens of a lead sentence that the digest quotes

_POWER = 2  # sections grow from the beginning: border i of n stands at (i / n) ** 2
_QUOTED = 0.95  # factor on the worth of a token each time it is quoted
_SHORTENED = 0.35  # a lead of n distinct tokens is judged by the sum of their worth / n ** 0.35
_CUT = 0.5  # factor on the score of a lead too long to be quoted whole
_FEWEST_WORDS = 4  # a shorter lead is scored as if it had this many distinct tokens


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Each section's chosen paragraph, int64 [count].

    Section i consists of the paragraphs ``borders[i]`` to ``borders[i + 1] - 1``.
    """

    chosen: np.ndarray
    borders: np.ndarray


def choose_paragraphs(
    paragraphs: Sequence[np.ndarray], leads: Sequence[int], idf: np.ndarray, count: int
) -> Choice:
    """Choose the best lead of each of ``count`` sections, or all leads if there are fewer.

    ``paragraphs``: token ids; ``leads``: the number of tokens of each paragraph's lead sentence,
    which would be quoted; ``idf`` float [vocabulary]. The worth of a lead is the sum of
    ``token_worth`` over its distinct tokens, divided by a power of their number, and halved if it
    is cut at MAX_LEAD. Tokens of chosen leads lose worth.
    """
    total = len(paragraphs)
    count = min(count, total)
    borders = _borders(total, count)
    chosen = np.zeros(count, dtype=np.int64)
    if not count:
        return Choice(chosen=chosen, borders=borders)
    worth = token_worth(paragraphs, idf)
    owner, token = _distinct([p[:n] for p, n in zip(paragraphs, leads, strict=True)], len(idf))
    starts = np.searchsorted(owner, np.arange(total + 1))
    scale = np.maximum(np.diff(starts), _FEWEST_WORDS) ** _SHORTENED
    scale[np.asarray(leads) >= MAX_LEAD] /= _CUT
    for section, (begin, end) in enumerate(pairwise(borders)):
        inside = slice(starts[begin], starts[end])
        sums = np.bincount(
            owner[inside] - begin, weights=worth[token[inside]], minlength=end - begin
        )
        best = begin + int(np.argmax(sums / scale[begin:end]))
        worth[token[starts[best] : starts[best + 1]]] *= _QUOTED
        chosen[section] = best
    return Choice(chosen=chosen, borders=borders)


def token_worth(paragraphs: Sequence[np.ndarray], idf: np.ndarray) -> np.ndarray:
    """Return log(1 + paragraphs that have the token) ** 2 * ``idf``: float64 [vocabulary].

    Without the square, the longest lead nearly always wins.
    """
    having = np.bincount(_distinct(paragraphs, len(idf))[1], minlength=len(idf))
    worth: np.ndarray = np.log1p(having) ** 2 * idf
    return worth


def _borders(total: int, count: int) -> np.ndarray:
    """Divide ``total`` paragraphs into ``count`` non-empty sections, short ones first.

    The beginning of a document states its subject and purpose.
    """
    place = np.arange(count + 1)
    if not count:
        return place * 0
    borders = np.floor(total * (place / count) ** _POWER + 1e-9).astype(np.int64)
    return np.maximum.accumulate(borders - place) + place


def _distinct(texts: Sequence[np.ndarray], vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct tokens of each text as (text index, token), ordered by text."""
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    keys = np.unique(owner * vocabulary + np.concatenate(texts).astype(np.int64))
    owner, token = np.divmod(keys, vocabulary)
    return owner, token
