"""Training documents: digests, targets and scores."""

import itertools

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from specx.training.pool import Pool
from specx.training.task import (
    CHOICE,
    COPY,
    FIRST_MARKER,
    LEAST_SPREAD,
    DigestDataset,
    Mixture,
    _body,
    _write_judged,
)
from specx.training.team import Team
from specx.training.texts import FIRST_TEXT, SORTS, Text
from specx.training.tokenizer import NUM_MARKERS


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_digests_copy_their_paragraphs(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, sort: str, control: bool
) -> None:
    task = DigestDataset(
        pool, (512, 1024), 4096, range(4), seed=5, mixture=Mixture({sort: 1.0}, control)
    )
    request = tokenizer.convert_tokens_to_ids("<sub>" if control else "<sum>")
    copied = 0
    for batch in (task[i] for i in range(4)):
        assert batch.tokens.shape == batch.weights.shape == batch.parts.shape
        for row, parts in zip(batch.tokens, batch.parts, strict=True):
            text = row[row != tokenizer.pad_token_id].tolist()
            digest = text.index(request)
            body = ",".join(map(str, text[:digest]))
            starts = torch.nonzero(parts == CHOICE).flatten().tolist()
            markers = [text[i] for i in starts]
            assert markers == sorted(set(markers))
            for start, end in itertools.pairwise(starts):
                quote = text[start + 1 : end]
                assert all((parts[start + 1 : end] == COPY).tolist())
                quote = [token ^ 1 for token in quote] if control else quote
                sentence = ",".join(map(str, [text[start], *quote]))
                assert sentence in body, "a quoted sentence stands behind its marker"
        copies = batch.sources >= 0
        assert torch.equal(copies, batch.parts == COPY)
        read = batch.tokens.gather(1, batch.sources.clamp(min=0))
        assert torch.equal(read[copies] ^ control, batch.tokens[copies])
        copied += int((batch.parts == COPY).sum())
    assert copied > 400


def test_choices_are_taught_by_distributions_over_their_sections(pool: Pool) -> None:
    batch = DigestDataset(pool, (4096,), 16384, range(1), 0, Mixture({"real": 1.0}, control=0))[0]
    chosen = batch.tokens[batch.parts == CHOICE] - FIRST_MARKER
    assert batch.targets.shape == (len(chosen), NUM_MARKERS)
    torch.testing.assert_close(batch.targets.sum(1), torch.ones(len(chosen)))
    # What was chosen is the best of its section, and not the only one that counts.
    best = batch.targets.max(1).values
    torch.testing.assert_close(batch.targets.gather(1, chosen[:, None])[:, 0], best)
    assert (best < 0.99).any()


def test_few_tokens_of_the_document_are_predicted_and_none_where_they_mean_nothing(
    pool: Pool,
) -> None:
    for sort, share in (("real", 0.2), ("alphabet", 0.0)):
        mixture = Mixture({sort: 1.0}, control=0, predicted=0.2)
        batch = DigestDataset(pool, (1024,), 8192, range(1), 0, mixture)[0]
        document = batch.parts == 1
        counted = (batch.weights[document] > 0).float().mean()
        assert abs(float(counted) - share) < 0.03


def test_every_token_of_natural_documents_is_judged(pool: Pool) -> None:
    batch = DigestDataset(pool, (4096,), 8192, range(1), 0, Mixture({"real": 1.0}, control=0))[0]
    row = 0
    tokens, scores, worths = batch.tokens[row], batch.scores[row], batch.worths[row]
    document = batch.parts[row] == 1
    text = document & (tokens >= FIRST_TEXT)
    assert torch.equal(~worths.isnan(), text)
    torch.testing.assert_close(float(worths[text].mean()), 0.0, atol=1e-4, rtol=0)
    assert worths[text & (tokens == tokens[text][0])].std() < 1e-6  # one worth for each token
    # Markers have the score of the paragraph before, so the first has none.
    markers = document & ~text
    (places,) = markers.nonzero(as_tuple=True)
    assert torch.equal(~scores.isnan(), document & (torch.arange(len(tokens)) > places[0]))
    assert torch.equal(scores[places[1:]], scores[places[1:] - 1])
    # The best of a section is chosen.
    behind = scores[places[1:]]
    chosen = tokens[batch.parts[row] == CHOICE] - tokens[0]
    assert behind[chosen[chosen < len(behind)]].mean() > behind.mean() + 0.5


@pytest.mark.parametrize("count", [1, 2])
def test_scores_stay_bounded_where_paragraphs_do_not_differ(count: int, pool: Pool) -> None:
    """Nothing spreads the scores of one paragraph, or of two alike, but their leads begin low."""
    paragraph = pool.paragraph(int(np.diff(pool.starts).argmax())).astype(np.int64)
    text = Text([paragraph] * count, [len(paragraph)] * count, natural=True)
    body = _body(text, first=0)
    _write_judged(body, text, pool.idf)
    found = body.scores[~np.isnan(body.scores)]
    assert len(found) == len(body.ids) - 1
    assert found.min() < -1
    assert np.abs(found).max() <= 1 / LEAST_SPREAD


def test_nothing_is_judged_where_the_text_means_nothing(pool: Pool) -> None:
    batch = DigestDataset(pool, (1024,), 4096, range(1), 0, Mixture({"random": 1.0}))[0]
    assert batch.worths.isnan().all()
    assert batch.scores.isnan().all()


def test_a_batch_depends_on_seed_and_index_alone(pool: Pool) -> None:
    def batch(seed: int, index: int) -> torch.Tensor:
        return DigestDataset(pool, (256, 512), tokens=2048, steps=range(9), seed=seed)[index].tokens

    assert torch.equal(batch(1, 3), batch(1, 3))
    assert not torch.equal(batch(1, 3)[:, :200], batch(2, 3)[:, :200])
    assert not torch.equal(batch(1, 3)[:, :200], batch(1, 4)[:, :200])


def test_a_team_divides_a_step(pool: Pool) -> None:
    """Documents of one length, as many as one process would draw, and all of them different."""

    def batches(size: int) -> list[torch.Tensor]:
        return [
            DigestDataset(pool, (256, 512), 8192, range(3), 1, team=Team(rank, size))[2].tokens
            for rank in range(size)
        ]

    (alone,), parts = batches(1), batches(4)
    assert torch.cat(parts).shape == alone.shape
    assert len(torch.cat(parts).unique(dim=0)) == len(alone)
