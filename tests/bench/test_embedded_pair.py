"""On the pair that ships with specx: the same output, and drafting that differs as it should."""

from functools import cache

import pytest
import torch

from specx.bench.cases import generated_documents
from specx.bench.methods import find_methods
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench, with_output, without_fallback
from specx.profile import load_profile
from specx.runs.pair import load_pair

NAMES = "plain,lookup,chain,specextend,window"


@cache
def runs() -> dict[str, Measurement]:
    """24 tokens of output behind 500 of a generated report, by every method."""
    torch.set_num_threads(1)
    profile = without_fallback(with_output(load_profile("mini").on("cpu"), 24))
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    documents = tuple(generated_documents(1, 600, 0))
    methods = tuple(find_methods(NAMES, profile))
    bench = Workbench(
        pair=pair, profile=profile, documents=documents, lengths=(500,), methods=methods
    )
    (case,) = bench.cases(500)
    setting = bench.setting(case)
    return {method.name: method.run(setting, case) for method in methods}


@pytest.mark.parametrize("name", NAMES.split(","))
def test_the_output_is_that_of_plain_decoding(name):
    assert runs()[name].output == runs()["plain"].output


def test_drafts_save_steps_where_the_target_copies():
    for name in ("lookup", "chain", "specextend"):
        assert runs()[name].acceptance_length > 1.5, name
    assert runs()["plain"].acceptance_length == 1.0
    assert runs()["plain"].steps == 23
