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
    """Each section's chosen paragraph, int64 [count], and all paragraphs' scores, float32 [P].

    Section i consists of the paragraphs ``borders[i]`` to ``borders[i + 1] - 1``. Scores are
    comparable within a section, in units of the pooled standard deviation inside sections.
    """

    chosen: np.ndarray
    borders: np.ndarray
    scores: np.ndarray


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
    scores = np.zeros(total)
    if not count:
        return Choice(chosen=chosen, borders=borders, scores=scores.astype(np.float32))
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
        scores[begin:end] = sums / scale[begin:end]
        best = begin + int(np.argmax(scores[begin:end]))
        worth[token[starts[best] : starts[best + 1]]] *= _QUOTED
        chosen[section] = best
    scores = (scores / _spread(scores, borders)).astype(np.float32)
    return Choice(chosen=chosen, borders=borders, scores=scores)


def token_worth(paragraphs: Sequence[np.ndarray], idf: np.ndarray) -> np.ndarray:
    """Return log(1 + paragraphs that have the token) ** 2 * ``idf``: float64 [vocabulary].

    Without the square, the longest lead nearly always wins.
    """
    worth: np.ndarray = np.log1p(_paragraph_frequency(paragraphs, len(idf))) ** 2 * idf
    return worth


def scores_so_far(
    paragraphs: Sequence[np.ndarray], leads: Sequence[int], worth: np.ndarray
) -> np.ndarray:
    """Return a score for each token of each paragraph: float64 [all tokens].

    The score of a token is that of the lead up to it; after the lead, that of the whole lead.
    Scores are those of ``choose_paragraphs`` before anything is quoted. ``leads``: lengths in
    tokens; ``worth`` float64 [vocabulary]. No paragraph is empty.
    """
    sizes = np.array([len(paragraph) for paragraph in paragraphs])
    owner = np.repeat(np.arange(len(sizes)), sizes)
    begins = np.cumsum(sizes) - sizes
    token = np.concatenate(paragraphs).astype(np.int64)
    read = np.arange(len(token)) - begins[owner] + 1  # of the paragraph, this token counted in
    length = np.asarray(leads)[owner]
    inside = np.flatnonzero(read <= length)
    new = np.zeros(len(token), dtype=bool)
    new[inside[np.unique(owner[inside] * len(worth) + token[inside], return_index=True)[1]]] = True

    def since_beginning(values: np.ndarray) -> np.ndarray:
        total = np.cumsum(values)
        before: np.ndarray = (total - values)[begins]
        return total - before[owner]

    scores = since_beginning(np.where(new, worth[token], 0.0))
    scores /= np.maximum(since_beginning(new.astype(np.int64)), _FEWEST_WORDS) ** _SHORTENED
    scores[np.minimum(read, length) >= MAX_LEAD] *= _CUT
    return scores


def _borders(total: int, count: int) -> np.ndarray:
    """Divide ``total`` paragraphs into ``count`` non-empty sections, short ones first.

    The beginning of a document states its subject and purpose.
    """
    place = np.arange(count + 1)
    if not count:
        return place * 0
    borders = np.floor(total * (place / count) ** _POWER + 1e-9).astype(np.int64)
    return np.maximum.accumulate(borders - place) + place


def _spread(scores: np.ndarray, borders: np.ndarray) -> float:
    """Return the pooled standard deviation inside sections; 1 if all scores are equal."""
    sizes = np.diff(borders)
    means = np.add.reduceat(scores, borders[:-1]) / sizes
    squares = np.square(scores - np.repeat(means, sizes)).sum()
    deviation = float(np.sqrt(squares / max(1, len(scores) - len(sizes))))
    return deviation if deviation > 1e-6 else 1.0


def _paragraph_frequency(paragraphs: Sequence[np.ndarray], vocabulary: int) -> np.ndarray:
    """Count the paragraphs in which each token occurs: int64 [vocabulary]."""
    return np.bincount(_distinct(paragraphs, vocabulary)[1], minlength=vocabulary)


def _distinct(texts: Sequence[np.ndarray], vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct tokens of each text as (text index, token), ordered by text."""
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    keys = np.unique(owner * vocabulary + np.concatenate(texts).astype(np.int64))
    owner, token = np.divmod(keys, vocabulary)
    return owner, token
