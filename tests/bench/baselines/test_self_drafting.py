"""MagicDec and TriForce on the embedded pair, run as ``specx bench`` runs a method."""

from functools import cache
from statistics import mean

import pytest
import torch

from specx.bench.cases import generated_documents
from specx.bench.methods import find_methods
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench, with_output, without_fallback
from specx.profile import load_profile
from specx.runs.pair import load_pair

OUTPUT = 40  # tokens
CHUNKS = 6  # of 64 tokens: all of a text of 350, a third of one of 1,000


@cache
def runs(length: int) -> dict[tuple[str, str], Measurement]:
    """Every method on a generated report of ``length`` tokens, by case and method."""
    profile = without_fallback(with_output(load_profile("mini").on("cpu"), OUTPUT))
    profile = profile.changed(draft_cache={"top_k": CHUNKS})
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    methods = tuple(find_methods("plain,magicdec,triforce", profile))
    documents = tuple(generated_documents(1, length, seed=7))
    bench = Workbench(
        pair=pair, profile=profile, documents=documents, lengths=(length,), methods=methods
    )
    turns = bench.alternate(bench.cases(length), warm_up=False)
    return {(run.case, run.method): run for run in turns}


def acceptance(length: int, method: str) -> float:
    """The mean over the reports."""
    done = runs(length)
    return mean(run.acceptance_length for (_, name), run in done.items() if name == method)


@pytest.mark.parametrize("name", ["magicdec", "triforce"])
@pytest.mark.parametrize("length", [350, 1000])
def test_the_text_is_the_targets_own(length: int, name: str) -> None:
    done = runs(length)
    for case in {case for case, _ in done}:
        assert len(done[case, "plain"].output) == OUTPUT
        assert done[case, name].output == done[case, "plain"].output


def test_the_target_on_all_of_its_cache_is_always_right() -> None:
    """The chunks are the whole text, and a step writes as much as may be drafted."""
    whole = load_profile("mini").tree.depth
    assert acceptance(350, "triforce") >= whole - 1  # the last step of an output is short


def test_retrieved_chunks_serve_the_target_better_than_the_latest() -> None:
    """It copies from chunks that a streaming cache has lost."""
    assert acceptance(1000, "triforce") > 1.5 * acceptance(1000, "magicdec")
