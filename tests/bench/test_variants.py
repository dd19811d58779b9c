"""Every method of our engine writes what plain decoding writes, and drafts as its name says."""

from dataclasses import replace

import pytest

from specx.bench.methods import METHODS, find_method
from tests.bench.settings import SMALL_CACHE, run_method, tiny_case, tiny_setting

VARIED = [
    "chain",
    "window",
    "specextend:layer=0,every=1,chunk=2,top_k=5",
    "specextend:retrieve=adaptive,every=16",
    "tree:window=5",
]


@pytest.mark.parametrize("prompt", [5, 70])
@pytest.mark.parametrize("name", VARIED)
def test_the_output_is_that_of_plain_decoding(name, prompt):
    setting, case = tiny_setting(max_new_tokens=40), tiny_case(prompt)
    run = run_method(name, setting, case)
    assert run.method == name
    assert run.output == run_method("plain", setting, case).output
    assert run.acceptance_length > 1
    if prompt == 70:
        assert run.acceptance_length < 4  # some drafts were wrong


@pytest.mark.parametrize("name", ["chain", "chain:depth=6"])
def test_a_chain_has_one_draft_a_level(name):
    depth = 6 if "6" in name else 3
    everything = {"chunk": 8, "top_k": 50, "every": 1, "window": None}
    setting = tiny_setting(max_new_tokens=1 + 4 * (depth + 1), cache=everything)
    pair = replace(setting.pair, draft=setting.pair.target)  # its drafts are always right
    run = run_method(name, replace(setting, pair=pair), tiny_case(60))
    assert run.acceptance_length == depth + 1
    assert run.steps == 4


def test_a_chain_accepts_no_more_than_a_tree_around_it():
    setting = tiny_setting(max_new_tokens=60)
    chain, tree = (run_method(name, setting, tiny_case(70)) for name in ("chain", "tree"))
    assert 1 < chain.acceptance_length < tree.acceptance_length


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tree", {"policy": "full", "window": None}),
        ("tree:window=5", {"policy": "full", "window": 5}),
        ("specextend", {"policy": "cross-model", "window": 8}),
        ("specextend:window=null", {"policy": "cross-model", "window": None}),
        ("specextend:layer=last,every=9", {"layer": "last", "every": 9, "chunk": 4}),
        ("window", {"policy": "streaming", "sink": 0}),
        ("streaming", {"policy": "streaming", "sink": 1}),
    ],
)
def test_what_a_name_makes_of_the_profile(name, expected):
    profile = tiny_setting().profile
    cache = find_method(name).change(profile).draft_cache.model_dump()
    assert {key: cache[key] for key in expected} == expected
    assert profile == tiny_setting(cache=SMALL_CACHE).profile


def test_every_method_says_what_it_is():
    assert all(method.about and method.name == name for name, method in METHODS.items())


def test_a_variant_says_how_it_differs():
    about = find_method("specextend:every=3").about
    assert about.endswith(", every=3")
