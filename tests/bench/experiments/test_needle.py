"""A draft with retrieval knows a number from far above; one that has lost it does not."""

import math

import pytest
import torch

from specx.bench.cases import generated_documents
from specx.bench.experiments.needle import EXPERIMENT
from specx.bench.methods import find_methods
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.profile import load_profile
from specx.runs.pair import load_pair
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench


def test_the_embedded_pair() -> None:
    profile = load_profile("mini").on("cpu")
    profile = profile.changed(draft_cache={"top_k": 4})  # of 11 chunks
    bench = Workbench(
        pair=load_pair(profile, "specextend", torch.device("cpu")),
        profile=profile,
        documents=tuple(generated_documents(1, 700, seed=0)),
        lengths=(700,),
        methods=tuple(find_methods("plain,streaming,specextend", profile)),
        most=1,
    )
    runs = list(EXPERIMENT.measure(bench))
    assert [run.method for run in runs] == ["streaming", "specextend"] * 5
    findings = EXPERIMENT.conclude(runs)
    table = findings.tables[0]
    accuracy = dict(columns_of(table, "method", "accuracy"))
    assert accuracy["specextend"] > 2 * accuracy["streaming"]
    perplexity = dict(columns_of(table, "method", "perplexity"))
    assert perplexity["specextend"] < perplexity["streaming"]
    assert columns_of(table, "digits") == [(50,), (50,)]


def test_definitions() -> None:
    facts = {
        "depth": 0.5,
        "draft_is_right": [True, False, False, True],
        "target_is_right": [True, True, False, False],
        "draft_logprobs": [math.log(0.5), math.log(0.5), math.log(0.125), math.log(0.125)],
    }
    silent = {**facts, "draft_is_right": [False] * 4}
    findings = EXPERIMENT.conclude(
        [made_up("specextend", facts=facts), made_up("streaming", facts=silent)]
    )
    assert columns_of(
        findings.tables[0],
        "accuracy",
        "perplexity",
        "accuracy where the target is right",
        "target's accuracy",
    ) == [(0.5, pytest.approx(4.0), 0.5, 0.5), (0.0, pytest.approx(4.0), 0.0, 0.5)]


def test_nothing_measured_yet() -> None:
    assert EXPERIMENT.conclude([]).tables == ()


def test_what_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="control"):
        next(EXPERIMENT.measure(tiny_bench(tasks=("control",))))
    with pytest.raises(UsageError, match="drafts"):
        next(EXPERIMENT.measure(tiny_bench("plain")))
