"""The choice of sentences against classical methods, on generated reports with summaries.

Every digest is compared with as many words of the document's beginning and of random leads.
``local`` is the share of a method's choice that it makes as well when it sees one section of the
document at a time: what a model can learn without weighing far places against each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import specx.models.embedded
from specx.documents.document import Paragraph
from specx.documents.paragraphs import grouped
from specx.documents.sentences import split_sentences
from specx.prompts.quotable import SHORTEST_PIECE
from specx.training.labels import MAX_LEAD, _borders, choose_paragraphs
from tests.evaluation.reports import generate_report_with_summary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SIZES, REPORTS, SENTENCES = (16_000, 32_000, 80_000), 40, (8, 16)
FIRST_SEED = 2000  # the method and its constants were picked on seeds 0 to 79 and 3000 to 3119
BEST = "chosen"


@dataclass
class Report:
    """``paragraphs`` and their lead sentences as text and as tokens, and the reference."""

    texts: list[str]
    sentences: list[str]
    paragraphs: list[np.ndarray]
    leads: list[int]
    summary: str

    def part(self, begin: int, end: int) -> "Report":
        inside = slice(begin, end)
        return Report(
            self.texts[inside],
            self.sentences[inside],
            self.paragraphs[inside],
            self.leads[inside],
            self.summary,
        )


def make(tokenizer: PreTrainedTokenizerFast, characters: int, seed: int) -> Report:
    """Every second report is regrouped, as text without paragraph breaks is."""
    report = generate_report_with_summary(characters, seed)
    texts = [paragraph.text for paragraph in report.document.paragraphs]
    if seed % 2:
        texts = [each.text for each in grouped(Paragraph(" ".join(texts), None))]
    texts = [text for text in texts if len(text) >= SHORTEST_PIECE]
    sentences = [split_sentences(text)[0] for text in texts]
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    leads = tokenizer(sentences, add_special_tokens=False)["input_ids"]
    return Report(
        texts,
        sentences,
        [np.array(row) for row in rows],
        [min(len(row), MAX_LEAD) for row in leads],
        report.summary,
    )


class Vectors:
    """TF-IDF vectors of unit length, dense [P, V], and their lengths before."""

    def __init__(self, texts: list[np.ndarray], idf: np.ndarray) -> None:
        counts = np.zeros((len(texts), len(idf)), dtype=np.float32)
        for row, text in zip(counts, texts, strict=True):
            np.add.at(row, text, 1)
        weights = np.log1p(counts) * idf.astype(np.float32)
        self.norm = np.maximum(np.linalg.norm(weights, axis=1), 1e-9)
        self.unit = weights / self.norm[:, None]


Method = Callable[[Report, np.ndarray, int], np.ndarray]
Score = Callable[[Report, np.ndarray], np.ndarray]


def leads(report: Report) -> list[np.ndarray]:
    return [p[:n] for p, n in zip(report.paragraphs, report.leads, strict=True)]


def centroid(report: Report, idf: np.ndarray) -> np.ndarray:
    """Of whole paragraphs: the labels of the prototype."""
    unit = Vectors(report.paragraphs, idf).unit
    return unit @ unit.sum(0)


def lead_centroid(report: Report, idf: np.ndarray) -> np.ndarray:
    return Vectors(leads(report), idf).unit @ Vectors(report.paragraphs, idf).unit.sum(0)


def long_lead_centroid(report: Report, idf: np.ndarray) -> np.ndarray:
    """The same, in favour of leads that say more."""
    return lead_centroid(report, idf) * np.sqrt(Vectors(leads(report), idf).norm)


def degree(report: Report, idf: np.ndarray) -> np.ndarray:
    unit = Vectors(leads(report), idf).unit
    return (unit @ unit.T > 0.1).sum(1).astype(float)


def lexrank(report: Report, idf: np.ndarray) -> np.ndarray:
    unit = Vectors(leads(report), idf).unit
    similar = unit @ unit.T
    return page_rank(np.where(similar > 0.1, similar, 0))


def textrank(report: Report, idf: np.ndarray) -> np.ndarray:
    """Shared content words over the logarithms of the lengths."""
    present = (Vectors(leads(report), idf * (idf > 3)).unit > 0).astype(np.float32)
    length = np.log(np.maximum(present.sum(1), 1))
    similar = present @ present.T / np.maximum(length[:, None] + length, 1)
    np.fill_diagonal(similar, 0)
    return page_rank(similar)


def page_rank(similar: np.ndarray) -> np.ndarray:
    step = similar / np.maximum(similar.sum(1, keepdims=True), 1e-9)
    rank = np.full(len(step), 1 / len(step))
    for _ in range(50):
        rank = 0.15 / len(step) + 0.85 * (rank @ step)
    return rank


def arbitrary(report: Report, _: np.ndarray) -> np.ndarray:
    return np.random.default_rng(len(report.texts)).random(len(report.texts))


def best(score: Score) -> Method:
    def choose(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
        return np.sort(np.argsort(-score(report, idf), kind="stable")[:count])

    return choose


def stratified(score: Score) -> Method:
    def choose(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
        values = score(report, idf)
        return np.array([b + int(values[b:e].argmax()) for b, e in sections(len(values), count)])

    return choose


def sections(total: int, count: int) -> list[tuple[int, int]]:
    return list(pairwise(_borders(total, min(count, total)).tolist()))


def greedy(gain: Callable[[list[int]], np.ndarray], total: int, count: int) -> np.ndarray:
    """``gain(chosen)`` values every paragraph; the best that is left is taken, again and again."""
    chosen: list[int] = []
    while len(chosen) < min(count, total):
        values = gain(chosen)
        values[chosen] = -np.inf
        chosen.append(int(values.argmax()))
    return np.sort(chosen)


def sum_basic(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
    content = idf > 3
    seen = np.bincount(np.concatenate(report.paragraphs), minlength=len(idf)) * content
    share = seen / seen.sum()
    words = [np.unique(lead)[content[np.unique(lead)]] for lead in leads(report)]

    def gain(chosen: list[int]) -> np.ndarray:
        if chosen:
            share[words[chosen[-1]]] **= 2
        return np.array([share[w].mean() if len(w) else 0 for w in words])

    return greedy(gain, len(words), count)


def kl_sum(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
    """The digest whose distribution of words is nearest to that of the document."""
    content = np.bincount(np.concatenate(report.paragraphs), minlength=len(idf)) * (idf > 3)
    (present,) = np.nonzero(content)
    wanted = content[present] / content.sum()
    rows = np.stack([np.bincount(lead, minlength=len(idf))[present] for lead in leads(report)])

    def gain(chosen: list[int]) -> np.ndarray:
        digest = rows[chosen].sum(0) + rows + 0.01
        return np.log(digest / digest.sum(1, keepdims=True)) @ wanted

    return greedy(gain, len(rows), count)


def mmr(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
    """Maximal marginal relevance of leads."""
    values = long_lead_centroid(report, idf)
    unit = Vectors(leads(report), idf).unit

    def gain(chosen: list[int]) -> np.ndarray:
        if not chosen:
            return values / values.max()
        return 0.6 * values / values.max() - 0.4 * (unit @ unit[chosen].T).max(1)

    return greedy(gain, len(values), count)


def chosen(report: Report, idf: np.ndarray, count: int) -> np.ndarray:
    """The rule that the embedded pair is trained on."""
    return choose_paragraphs(report.paragraphs, report.leads, idf, count).chosen


SCORES: tuple[Score, ...] = (
    centroid,
    lead_centroid,
    long_lead_centroid,
    degree,
    lexrank,
    textrank,
)
METHODS: dict[str, Method] = {
    **{score.__name__: best(score) for score in SCORES},
    **{f"stratified {score.__name__}": stratified(score) for score in SCORES},
    "stratified random": stratified(arbitrary),
    **{"sum_basic": sum_basic, "kl_sum": kl_sum, "mmr": mmr},
    BEST: chosen,
}


def local_share(method: Method, report: Report, idf: np.ndarray, chosen: np.ndarray) -> float:
    borders = sections(len(report.texts), len(chosen))
    alone = {b + int(method(report.part(b, e), idf, 1)[0]) for b, e in borders}
    return len(alone & set(chosen.tolist())) / len(chosen)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    (folder,) = specx.models.embedded.__path__
    return AutoTokenizer.from_pretrained(f"{folder}/target")


@pytest.fixture(scope="module")
def idf(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """From reports that are not evaluated on."""
    rows = [row for seed in range(900, 930) for row in make(tokenizer, 24_000, seed).paragraphs]
    frequency = np.zeros(len(tokenizer))
    for row in rows:
        frequency[np.unique(row)] += 1
    return np.log((1 + len(rows)) / (1 + frequency))


@pytest.mark.parametrize("count", SENTENCES)
def test_the_choice_beats_beginnings_and_chance(
    count: int, tokenizer: PreTrainedTokenizerFast, idf: np.ndarray
) -> None:
    rouge = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = rouge.RougeScorer(["rouge1", "rouge2"], use_stemmer=True)

    def f1(text: str, reference: str) -> list[float]:
        return [score.fmeasure for score in scorer.score(reference, text).values()]

    rows: dict[str, list[list[float]]] = {name: [] for name in METHODS}
    for index in range(REPORTS):
        report = make(tokenizer, SIZES[index % len(SIZES)], FIRST_SEED + index)
        shuffled = np.random.default_rng(index).permutation(len(report.texts))
        beginning = " ".join(report.texts).split()
        chance = " ".join(report.sentences[i] for i in shuffled).split()
        for name, method in METHODS.items():
            chosen = method(report, idf, count)
            digest = " ".join(report.sentences[i] for i in chosen)
            words = len(digest.split())
            others = [f1(" ".join(text[:words]), report.summary) for text in (beginning, chance)]
            local = local_share(method, report, idf, chosen)
            rows[name].append([*f1(digest, report.summary), *others[0], *others[1], words, local])
    table = {name: np.mean(values, axis=0) for name, values in rows.items()}
    print(f"\n{count} sentences, {REPORTS} reports")
    print(f"{'method':30} R-1   R-2   lead R-1, R-2  random R-1, R-2  words  local")
    for name, row in sorted(table.items(), key=lambda item: -item[1][:2].sum()):
        one, two, lead1, lead2, random1, random2, words, local = row
        print(
            f"{name:30} {one:.3f} {two:.3f} {lead1:.3f}  {lead2:.3f}   {random1:.3f}  "
            f"{random2:.3f}      {words:4.0f}  {local:.2f}"
        )
    one, two, lead1, lead2, random1, random2, *_ = table[BEST]
    assert one >= max(lead1, random1) + 0.02
    assert two >= random2 + 0.015
    assert two >= lead2 - 0.01  # beginnings state the purpose, as the summary does
    # Measured: the best, by .010 with 8 and .021 with 16 sentences.
    assert one + two >= max(row[:2].sum() for row in table.values()) - 0.001
