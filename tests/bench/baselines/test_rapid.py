"""RAPID: a draft of passages that are retrieved."""

import pytest
import torch

from specx.bench.baselines.rapid import FRAME, Rapid, bm25, retrieved_rows
from specx.bench.methods.stock import stock
from specx.decoding.target import Target
from tests.bench.baselines.drafting import check, likely_pair, resolved, small_profile
from tests.decoding.pairs import make_prompt
from tests.ops.test_trees import paths_of

FULL = {"policy": "full", "window": None, "chunk": 8, "top_k": 3}


@pytest.mark.parametrize("length", [1, 200])
def test_the_text_is_the_targets_own(length):
    pair, profile = likely_pair(), small_profile(FULL)
    result = check(
        lambda n: Rapid(resolved(profile, pair, "tree"), pair, n),
        pair,
        profile,
        make_prompt(length),
    )
    assert sum(result.accepted) > 0
    assert [item.total for item in result.progress if item.model == "draft"] == [
        min(length, 2 * FRAME + 3 * 8)
    ]


def test_drafts_are_those_behind_the_passages_alone():
    pair, profile = likely_pair(), small_profile(FULL, tree={"nodes": 4, "depth": 4, "width": 1})
    text, root = make_prompt(200), 5
    drafter = Rapid(resolved(profile, pair, "tree"), pair, 300)
    list(drafter.prefill(torch.tensor(text), Target(pair.target, len(text), None)))
    drafter.pend(torch.tensor([root]), torch.tensor(1))
    found = paths_of(drafter.grow(torch.tensor([root])))
    tokens = [*(text[row] for row in retrieved_rows(text, 8, 3)), root]
    assert len(tokens) == 2 * FRAME + 3 * 8 + 1
    with torch.no_grad(), stock(likely_pair().draft) as model:
        logits = model(input_ids=torch.tensor([tokens])).logits[0, -1]
    assert (int(logits.masked_fill(~pair.draft_allowed, -torch.inf).argmax()),) in found


def test_passages_that_share_words_with_others_stand_for_the_text():
    assert bm25([]) == []
    rare = [[n, n + 1, n + 2] for n in range(10, 40, 10)]
    scores = bm25([[1, 2, 3], [1, 2, 3], [1, 2, 3], *rare])
    assert min(scores[:3]) > max(scores[3:])


def test_rows_are_in_order_and_frame_the_passages():
    text = [
        *range(100, 100 + FRAME),
        *([1, 2] * 4),
        *range(200, 216),
        *([1, 2] * 4),
        *range(50, 82),
    ]
    rows = retrieved_rows(text, 8, 2)
    assert rows == sorted(rows)
    inner = rows[FRAME:-FRAME]
    assert inner == [*range(FRAME, FRAME + 8), *range(FRAME + 24, FRAME + 32)]
    assert retrieved_rows(text[:20], 8, 2) == list(range(20))
