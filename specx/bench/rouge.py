"""ROUGE: the words that a summary shares with a reference."""

from typing import Any

KINDS = ("rouge1", "rouge2", "rougeL")


class Rouge:
    """F-measures of single words, pairs of words and the longest common subsequence, with stemmed
    words, as the library ``rouge-score`` counts them (Lin 2004)."""

    def __init__(self) -> None:
        from rouge_score.rouge_scorer import RougeScorer  # takes a second to import

        self._scorer: Any = RougeScorer(list(KINDS), use_stemmer=True)

    def score(self, text: str, reference: str) -> dict[str, float]:
        """By kind, from 0 to 1."""
        scores = self._scorer.score(reference, text)
        return {kind: scores[kind].fmeasure for kind in KINDS}


def first_words(text: str, count: int) -> str:
    return " ".join(text.split()[:count])
