"""The grammar of names, and what it says about wrong ones."""

import re

import pytest

from specx.bench.methods import METHODS, find_methods
from specx.bench.methods.names import parse_name, split_names
from specx.errors import UsageError
from tests.bench.settings import tiny_setting

BASES = ["tree", "hf-generate", "own-attention", "own"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("plain", ["plain"]),
        ("plain, tree,plain", ["plain", "tree"]),
        ("a:x=1,y=2,b,c:z=3", ["a:x=1,y=2", "b", "c:z=3"]),
        ("a:x=1, y=2 ,b:x=1", ["a:x=1,y=2", "b:x=1"]),
    ],
)
def test_commas_before_settings_do_not_separate_names(text, names):
    assert split_names(text) == names


def test_a_name_is_base_components_and_settings():
    name = parse_name("tree-hta+cmr:every=2,at-prefill=off", BASES, ["hta", "cmr"])
    assert name.base == "tree"
    assert name.components == (("-", "hta"), ("+", "cmr"))
    assert name.settings == ("every=2", "at-prefill=off")


@pytest.mark.parametrize("base", ["hf-generate", "own-attention", "own"])
def test_hyphens_inside_a_base_are_no_components(base):
    assert parse_name(base, BASES, ["attention"]).base == base
    assert parse_name(f"{base}+hta", BASES, ["hta"]).components == (("+", "hta"),)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("specextent", r"'specextent' is no method; did you mean 'specextend'"),
        ("zzz", r"'zzz' is no method; there are plain, hf-generate"),
        ("", r"'' is no method"),
        ("plain,", r"'' is no method"),
        ("tree+cmrr", r"'tree\+cmrr' has no component 'cmrr'; did you mean 'cmr'"),
        ("tree+", r"has no component ''"),
        ("tree+hta", r"\+hta in tree\+hta changes nothing: the method has it already"),
        ("tree-cmr", r"-cmr in tree-cmr changes nothing: the method does not have it"),
        ("streaming+cmr", r"cannot have cmr: it chooses chunks by streaming already"),
        ("lexical+streaming", r"cannot have streaming: it chooses chunks by lexical already"),
        ("plain-hta", r"plain has no components and no settings; write plain"),
        ("hf-generate:chunk=3", r"hf-generate has no components and no settings"),
        ("specextend:", r"no setting behind the colon; write specextend:key=value"),
        ("specextend:chunk", r"'chunk' in specextend:chunk is no setting; write key=value"),
        ("specextend:chunk=", r"'chunk=' in specextend:chunk= is no setting"),
        ("specextend:chunks=3", r"no setting 'chunks'; did you mean 'chunk'"),
        ("specextend:policy=full", r"has no setting 'policy'"),
        ("tree:every=3", r"tree:every=3 has no setting 'every'"),
        ("streaming:layer=1", r"streaming:layer=1 has no setting 'layer'"),
        ("chain:width=2", r"chain:width=2 has no setting 'width'; did you mean 'depth'|width"),
        ("specextend:chunk=0", r"specextend:chunk=0: `draft_cache.chunk` is 0; it must be at"),
        ("specextend:chunk=a", r"`draft_cache.chunk` is 'a'; it must be a whole number"),
        ("specextend:chunk=[", r"'\[' in specextend:chunk=\[ is no value"),
        ("specextend:layer=middle", r"`draft_cache.layer` is 'middle'; it must be last, auto"),
        ("tree:nodes=2", r"`tree.depth` is 3, but 2 nodes reach at most 2 levels"),
        ("specextend:at-prefill=3", r"at-prefill in specextend:at-prefill=3 must be on or off"),
        ("specextend:top_k=99999", r"holds chunk × top_k = 399996 tokens"),
    ],
)
def test_a_wrong_name_is_one_sentence(names, message):
    with pytest.raises(UsageError, match=message) as caught:
        find_methods(names, tiny_setting().profile)
    assert "\n" not in str(caught.value)


def test_a_window_that_the_profile_lacks_cannot_be_added():
    profile = tiny_setting(cache={"window": None}).profile
    with pytest.raises(UsageError, match=r"no window for tree\+window; write one, as in"):
        find_methods("tree+window", profile)
    find_methods("tree+window:window=9", profile)
    find_methods("specextend", profile)


def test_without_a_draft_few_methods_run():
    profile = tiny_setting().profile.model_copy(update={"draft": None})
    names = "plain,hf-generate,hf-static,prompt-lookup,magicdec,lookup"
    find_methods(names, profile)
    for name in set(METHODS) - set(names.split(",")):
        with pytest.raises(UsageError, match=f"has no draft, so it cannot run {re.escape(name)}"):
            find_methods(name, profile)


def test_masked_attention_is_not_compiled():
    profile = tiny_setting().profile.model_copy(update={"compile": True})
    find_methods("tree,specextend,tree-flash", profile)
    with pytest.raises(UsageError, match="set compile: false in profile tiny"):
        find_methods("tree-hta", profile)
