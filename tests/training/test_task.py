"""Documents on which heads are trained: real and invented texts with their digests."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from specx.training.labels import MAX_LEAD
from specx.training.medusa import EMBEDDED
from specx.training.pool import Pool, generated_pool
from specx.training.task import DigestDocuments
from specx.training.texts import (
    FIRST_TEXT,
    FULL_STOP,
    NUM_MARKERS,
    SORTS,
    SPECIAL_TOKENS,
    Texts,
)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(EMBEDDED / "target")


@cache
def pool() -> Pool:
    return generated_pool(tokenizer(), range(30, 42), 6000)


def test_special_tokens_are_those_of_the_target() -> None:
    found = tokenizer().convert_ids_to_tokens([*range(FIRST_TEXT), FULL_STOP])
    assert found == [*SPECIAL_TOKENS, "."]


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_digests_copy_their_paragraphs(sort: str, control: bool) -> None:
    drawn = DigestDocuments(pool(), 1024, seed=5, sorts={sort: 1.0}, control=float(control))
    request, end = tokenizer().convert_tokens_to_ids(["<sub>" if control else "<sum>", "<end>"])
    markers = range(FIRST_TEXT - NUM_MARKERS, FIRST_TEXT)
    copied = 0
    for row, first in drawn.draw(step=0, count=6):
        assert row.shape[1] <= 1024
        ids = row[0].tolist()
        assert ids[first - 2] == request
        body = ",".join(map(str, ids[: first - 2]))
        written = ids[first:]
        assert written[0] in markers
        assert end not in written[:-1]
        starts = [place for place, token in enumerate(written) if token in markers]
        chosen = [written[place] for place in starts]
        assert chosen == sorted(set(chosen))
        for start, stop in pairwise(starts):
            quote = [token ^ control for token in written[start + 1 : stop]]
            assert ",".join(map(str, [written[start], *quote])) in body
            copied += len(quote)
    assert copied > 100


def test_documents_depend_on_seed_and_step_alone() -> None:
    def drawn(seed: int, step: int) -> list[list[int]]:
        documents = DigestDocuments(pool(), 512, seed).draw(step, 3)
        return [ids[0].tolist() for ids, _ in documents]

    assert drawn(1, 3) == drawn(1, 3)
    assert drawn(1, 3) != drawn(2, 3)
    assert drawn(1, 3) != drawn(1, 4)


@pytest.mark.parametrize("sort", SORTS)
def test_texts_fill_their_room_with_text(sort: str) -> None:
    texts = Texts(pool())
    for seed in range(8):
        text = texts.draw(sort, np.random.default_rng(seed), room=1500)
        size = sum(len(paragraph) + 1 for paragraph in text.paragraphs)
        assert 1000 < size < 2200
        assert len(text.leads) == len(text.paragraphs) <= NUM_MARKERS
        for paragraph, lead in zip(text.paragraphs, text.leads, strict=True):
            assert 1 <= lead <= min(len(paragraph), MAX_LEAD)
            assert paragraph.min() >= FIRST_TEXT
            assert paragraph.max() < len(pool().idf)


def _repeated(paragraphs: list[np.ndarray], n: int) -> float:
    """Share of the n-grams that occur more than once."""
    tokens = np.concatenate(paragraphs).tolist()
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n)]
    return 1 - len(set(grams)) / len(grams)


def test_invented_documents_repeat_themselves() -> None:
    texts, rng = Texts(pool()), np.random.default_rng(2)
    share = {
        sort: np.mean([_repeated(texts.draw(sort, rng, 4000).paragraphs, 3) for _ in range(6)])
        for sort in ("random", "alphabet", "phrases", "variants")
    }
    assert share["random"] < 0.01
    assert min(share["alphabet"], share["phrases"], share["variants"]) > 0.2
