"""Recall and acceptance by layer."""

from typing import Any

import pytest
import torch

from specx.bench.experiments.layers import EXPERIMENT, Recall, is_chosen, needed
from specx.bench.methods import METHODS
from specx.bench.runs import Setting
from specx.bench.watching import TokenAttention
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench


def without_retrieval(bench: Workbench) -> dict[str, Any]:
    return {**vars(bench), "profile": bench.profile.changed(draft_cache={"policy": "full"})}


def test_every_layer_is_decoded_with_and_watched() -> None:
    bench = tiny_bench("plain", repeats=2)
    runs = list(EXPERIMENT.measure(bench))
    assert [run.method for run in runs] == ["layer 0", "layer 1"]
    plain = METHODS["plain"].run(Setting(bench.pair, bench.profile), bench.all_cases()[0])
    for layer, run in enumerate(runs):
        assert run.output == plain.output
        assert run.facts["layer"] == layer
        assert len(run.facts["heads"]) == 4
        assert 0 <= run.facts["mean"] <= run.facts["copied"]
    # Layer 1 is the profile's own.
    own = METHODS["specextend"].run(Setting(bench.pair, bench.profile), bench.all_cases()[0])
    assert runs[1].acceptance_length == own.acceptance_length


def test_a_chunk_counts_where_retrieval_would_take_it() -> None:
    recall = Recall.empty(2)
    look = TokenAttention(
        0, torch.tensor([[0.2, 0.55, 0.0, 0.25, 0.0], [0.5, 0.0, 0.45, 0.05, 0.0]])
    )
    recall.count(look, 0, top_k=2)  # the newest, and the best of mean or max
    assert vars(recall) == {"copied": 1, "mean": 1, "max": 0, "heads": [0, 1]}
    recall.count(look, 4, top_k=2)
    assert vars(recall) == {"copied": 2, "mean": 2, "max": 1, "heads": [1, 2]}


def test_a_draft_guesses_from_the_second_token_on() -> None:
    looks = [TokenAttention(place, torch.zeros(1, 1)) for place in range(4)]
    assert [needed([7, 8, None, 10], look) for look in looks] == [None, 10, None, None]


def test_the_newest_chunk_is_always_chosen() -> None:
    scores = torch.tensor([0.9, 0.8, 0.1])
    assert [is_chosen(scores, chunk, 2) for chunk in range(3)] == [True, False, True]
    assert all(is_chosen(scores, chunk, 9) for chunk in range(3))


def facts(layer: int, mean: int, largest: int, heads: list[int]) -> dict[str, Any]:
    counts = {"copied": 10, "mean": mean, "max": largest, "heads": heads}
    return {"layer": layer, "chance": 0.25, **counts}


def test_sums_over_documents() -> None:
    runs = [
        made_up("layer 0", acceptance_length=4.0, facts=facts(0, 8, 6, [1, 9])),
        made_up("layer 1", acceptance_length=2.0, facts=facts(1, 2, 4, [3, 0])),
        made_up("layer 0", case="b", acceptance_length=5.0, facts=facts(0, 10, 8, [8, 2])),
        made_up("layer 1", case="b", acceptance_length=3.0, facts=facts(1, 4, 4, [3, 5])),
    ]
    findings = EXPERIMENT.conclude(runs)
    columns = "layer", "recall, mean over heads", "recall, best head", "best head"
    assert columns_of(findings.tables[0], *columns) == [(0, 0.9, 0.55, 1), (1, 0.3, 0.3, 0)]
    columns = "acceptance length", "recall, max over heads"
    assert columns_of(findings.tables[0], *columns) == [(4.5, 0.7), (2.5, 0.4)]
    assert [figure.name for figure in findings.figures] == ["layers-digest", "recall-digest"]


def test_a_text_in_words_of_its_own() -> None:
    nothing = {**facts(0, 0, 0, [0, 0]), "copied": 0}
    findings = EXPERIMENT.conclude([made_up("layer 0", facts=nothing)])
    assert columns_of(findings.tables[0], "recall, mean over heads", "best head") == [(None, None)]
    assert [figure.name for figure in findings.figures] == ["layers-digest"]


def test_a_profile_that_does_not_retrieve() -> None:
    bench = Workbench(**without_retrieval(tiny_bench()))
    with pytest.raises(UsageError, match="cross-model"):
        next(EXPERIMENT.measure(bench))
