"""Digests of real reports: faithful on raw tokens, and nearer to the reference than the lead."""

import statistics
from typing import Any

import pytest

from specx.decoding.loop import decode
from specx.decoding.methods import Pair
from specx.documents.digest import Digest
from specx.documents.document import Document
from specx.documents.prompt import Prompt
from specx.profile import Profile
from specx.records import Step
from tests.evaluation.digests import Counts, count, first_words, random_leads

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SENTENCES, TOKENS = 8, 700
SIZES = ("4K", "8K", "16K")
RANDOM_SEEDS = range(20)


@pytest.fixture(scope="module")
def written(
    govreport: dict[str, list[Document]], pair: Pair, mini: Profile
) -> dict[str, list[tuple[Document, Prompt, list[int]]]]:
    """Greedy, unconstrained output of plain decoding for every document."""
    generation = mini.generation.model_copy(update={"max_new_tokens": TOKENS})
    profile = mini.model_copy(update={"generation": generation})
    digest = Digest(pair.target.tokenizer, SENTENCES)
    outputs: dict[str, list[tuple[Document, Prompt, list[int]]]] = {}
    for size in SIZES:
        outputs[size] = []
        for document in govreport[size]:
            (prompt,) = digest.prompts(document, pair.target.window - TOKENS)
            events = decode(pair, profile, "plain", prompt.token_ids)
            tokens = [
                token for event in events if isinstance(event, Step) for token in event.tokens
            ]
            outputs[size].append((document, prompt, tokens))
    return outputs


@pytest.mark.parametrize("size", SIZES)
def test_sentences_are_verbatim_and_markers_ascend(
    size: str, written: dict[str, list[tuple[Document, Prompt, list[int]]]], pair: Pair
) -> None:
    counts = Counts()
    for document, prompt, tokens in written[size]:
        count(counts, tokens, prompt, document, pair.target.tokenizer)
    print(f"\n{size}: {counts.sentences - counts.not_verbatim} of {counts.sentences} verbatim")
    print(*counts.examples, counts, sep="\n  ")
    assert counts.fewest >= 5
    assert counts.verbatim >= 0.98
    assert counts.unknown_markers == counts.descents == counts.repeats == 0


@pytest.mark.parametrize("size", SIZES)
def test_digests_are_nearer_to_the_reference_than_lead_and_random(
    size: str,
    written: dict[str, list[tuple[Document, Prompt, list[int]]]],
    references: dict[str, str],
    pair: Pair,
) -> None:
    rouge = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = rouge.RougeScorer(["rouge1", "rouge2"], use_stemmer=True)

    def score(reference: str, text: str) -> Any:
        found = scorer.score(reference, text)
        return found["rouge1"].fmeasure, found["rouge2"].fmeasure

    table: dict[str, list[tuple[float, float]]] = {"digest": [], "lead": [], "random": []}
    words = []
    for document, prompt, tokens in written[size]:
        reader = Digest(pair.target.tokenizer, SENTENCES).reader(prompt)
        reader.feed([token for token in tokens if token not in pair.target.eos_token_ids])
        text = " ".join(quote.sentence for quote in reader.finish()[1].quotes)
        reference, length = references[document.name], len(text.split())
        words.append(length)
        table["digest"].append(score(reference, text))
        table["lead"].append(score(reference, first_words(document, length)))
        drawn = [score(reference, random_leads(prompt, length, seed)) for seed in RANDOM_SEEDS]
        table["random"].append(tuple(statistics.mean(part) for part in zip(*drawn, strict=True)))
    means = {
        name: [statistics.mean(part) for part in zip(*rows, strict=True)]
        for name, rows in table.items()
    }
    print(f"\n{size}: {statistics.mean(words):.0f} words")
    for name, (one, two) in means.items():
        print(f"  {name:8} ROUGE-1 {one:.3f}  ROUGE-2 {two:.3f}")
    for name in ("lead", "random"):
        assert means["digest"][0] >= means[name][0] + 0.02
        assert means["digest"][1] >= means[name][1] + 0.02
