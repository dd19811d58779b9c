"""MagicDec and TriForce on the embedded pair, run as ``specx bench`` runs a method."""

from functools import cache

import pytest
import torch

from specx.batch.pair import load_pair
from specx.bench import triforce
from specx.bench.cases import generated_documents
from specx.bench.methods import find_methods
from specx.bench.runs import Run
from specx.bench.workbench import Workbench, with_output, without_fallback
from specx.profile import load_profile


@cache
def runs() -> dict[str, Run]:
    """Every method on a generated report of 600 tokens, on 8 chunks of it: a target that drafts
    for itself reads more of them well than the small draft does."""
    profile = without_fallback(with_output(load_profile("mini").on("cpu"), 40))
    cache = profile.draft_cache.model_copy(update={"top_k": 8})
    profile = profile.model_copy(update={"draft_cache": cache})
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    methods = tuple(find_methods("plain,magicdec,triforce", profile))
    documents = tuple(generated_documents(1, 600, seed=0))
    bench = Workbench(pair, profile, documents, (600,), methods)
    return {run.method: run for run in bench.alternate(bench.cases(600, "digest"))}


@pytest.mark.parametrize("name", ["magicdec", "triforce"])
def test_the_text_is_the_targets_own(name: str) -> None:
    assert len(runs()["plain"].output) == 40
    assert runs()[name].output == runs()["plain"].output


def test_the_target_on_retrieved_chunks_is_nearly_always_right() -> None:
    """It copies from chunks that a streaming cache has lost."""
    whole = triforce.PROPOSED + load_profile("mini").tree.depth
    assert runs()["triforce"].acceptance_length > whole - 3
    assert runs()["triforce"].acceptance_length > 1.5 * runs()["magicdec"].acceptance_length
