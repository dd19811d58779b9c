"""Queries of a pass are kept for retrieval."""

import pytest
import torch

from specx.models.call import KeptQueries


@pytest.mark.parametrize("room", [3, 5, 9])
def test_the_last_queries_are_kept(room):
    kept = KeptQueries(1, torch.zeros(4, room, 32), torch.zeros(4, room))
    query, lse = torch.randn(4, 5, 32), torch.randn(4, 5)
    kept.record(query, lse)
    rows = min(room, 5)
    assert torch.equal(kept.queries[:, :rows], query[:, -rows:])
    assert torch.equal(kept.lse[:, :rows], lse[:, -rows:])
    kept.record(query[:, :1], None)  # of a prompt: its last token's
    assert torch.equal(kept.queries[:, :1], query[:, :1])
