"""With a head, too, speculative decoding writes what plain decoding writes."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from specx.decoding import decode as decoding
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.lookup_drafter import BEHIND
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.decoding.tuner import Tuner
from specx.models.compat import head_facts
from specx.profile import AutoTree
from tests.decoding.chi_square import p_value
from tests.decoding.pairs import check, loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_runner import Replaying, Watching
from tests.heads import apt_head, head_target, load, make_head_file
from tests.pairwise import every_other
from tests.tiny import VOCAB

METHODS = ["tree", "streaming", "specextend", "specextend+lookup"]
KINDS = ["eagle", "safeailab"]
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8, "layer": 0}


@cache
def apt_pair(kind: str) -> Pair:
    """A target of one layer, and a head that is right more often than not."""
    target = loaded(seed=0, peak=5.0, attention=0.04, num_hidden_layers=1)
    target = replace(target, eos_token_ids=frozenset())
    layers = None if kind == "eagle" else (0, 1)
    file = apt_head(target, kind)
    if kind != "eagle":  # the input of the only layer, and its output
        file.tensors["fc.weight"] = file.tensors["fc.weight"][:, :128]
    with TemporaryDirectory() as folder:
        head = load(file.write(Path(folder) / "head"), target, head_layers=layers)
    target_allowed, draft_allowed = head_facts(target, head)
    return Pair(target, target_allowed, head, draft_allowed)


def test_a_head_on_a_cpu_is_not_said_to_be_row_invariant():
    """Its target goes layer by layer, plain decoding through all of them at once."""
    pair = apt_pair("eagle")
    assert pair_of(pair.target).row_invariant == pair.target.row_invariant
    assert not pair.row_invariant


@pytest.mark.every(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_targets_own(kind, method):
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=60, tree={"nodes": 8, "depth": 4})
    result = check(apt_pair(kind), method, profile, make_prompt(60))
    # In EAGLE-3 the state is the residual, so a head that ignores it is right about one token only.
    assert sum(result.accepted) > (1.0 if kind == "eagle" else 0.5) * len(result.accepted)
    assert len(set(result.accepted)) > 1


@pytest.mark.parametrize(
    ("method", "length"), every_other(["tree", "specextend+lookup"], [1, 2, 3, 15, 16, 17, 33])
)
def test_prompts_from_one_token_to_some_chunks(method, length, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    check(apt_pair("safeailab"), method, make_profile(cache=SMALL_CACHE), make_prompt(length))


@pytest.mark.parametrize(("chunk", "top_k"), every_other([1, 4, 32], [1, 2, 50]))
def test_working_caches_of_every_size(chunk, top_k):
    cache = {"chunk": chunk, "top_k": top_k, "every": 3, "sink": 0, "window": 16, "layer": 0}
    for method in ("streaming", "specextend"):
        check(apt_pair("safeailab"), method, make_profile(cache=cache), make_prompt(70))


@pytest.mark.parametrize("method", ["streaming", "specextend"])
def test_a_working_cache_that_holds_everything_drafts_as_the_full_one(method):
    cache = {"chunk": 8, "top_k": 50, "every": 1, "window": None, "layer": 0}
    profile = make_profile(cache=cache, max_new_tokens=40)
    pair = apt_pair("safeailab")
    full = run(pair, profile, "tree", make_prompt(60))
    assert run(pair, profile, method, make_prompt(60)).accepted == full.accepted


def test_a_head_that_lookup_left_behind_catches_up(monkeypatch):
    """It reads the features of the steps that lookup drafted alone."""
    turns = [True, *[False] * 90, *[True] * 1000]
    monkeypatch.setattr(Tuner, "model_drafts", lambda _: turns.pop(0))
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=400)
    prompt = make_prompt(20) * 3
    result = check(apt_pair("safeailab"), "specextend+lookup", profile, prompt)
    assert len(result.tokens) > BEHIND
    assert not turns[:1] or turns[0]  # the head drafted again


@pytest.mark.every(2)
@pytest.mark.parametrize(("method", "below"), every_other(METHODS, [None, 1e9]))
def test_stages_can_be_recorded(method, below, monkeypatch):
    """Replayed on the same memory they write the same; on the host they change nothing."""
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=100, below=below)
    prompt, pair = make_prompt(20) * 3, apt_pair("safeailab")
    expected = run(pair, profile, method, prompt)
    for runner in (Replaying, Watching):
        monkeypatch.setattr(decoding, "runner_for", lambda *_, made=runner, **__: made())
        assert run(pair, profile, method, prompt).tokens == expected.tokens


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend"])
def test_the_tree_can_be_chosen(method):
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=120, below=0.0)
    profile = profile.changed(tree=AutoTree())
    result = check(apt_pair("safeailab"), method, profile, make_prompt(60))
    assert sum(result.accepted) > 0


def test_documents_do_not_know_of_each_other():
    pair, profile = apt_pair("eagle"), make_profile(cache=SMALL_CACHE)
    alone = run(pair, profile, "specextend", make_prompt(50, seed=1))
    run(pair, profile, "specextend+lookup", make_prompt(70, seed=2))
    again = run(pair, profile, "specextend", make_prompt(50, seed=1))
    assert (again.tokens, again.accepted) == (alone.tokens, alone.accepted)


@pytest.mark.parametrize("layout", ["safeailab", "specforge", "speculators"])
def test_a_small_vocabulary_forbids_nothing(layout, tmp_path):
    """The head of 120 ids is a bad draft; the target writes ids that it lacks all the same."""
    target = head_target()
    head = load(make_head_file(layout).write(tmp_path / "head"), target)
    target_allowed, draft_allowed = head_facts(target, head)
    pair = Pair(target, target_allowed, head, draft_allowed)
    result = check(pair, "specextend", make_profile(cache=SMALL_CACHE), make_prompt(40))
    assert set(result.tokens) - set(head.model.target_ids.tolist())


def test_draws_are_distributed_as_the_targets_own():
    """The second token of texts that begin alike; a head drafts it."""
    pair, prompt = apt_pair("eagle"), make_prompt(12)
    target, written, accepted = pair.target, [], 0
    for seed in range(300):
        profile = make_profile(
            tree={"nodes": 4, "depth": 1}, max_new_tokens=2, temperature=3.0, top_k=4, seed=seed
        )
        result = run(pair, profile, "tree", prompt)
        written.append(tuple(result.tokens))
        accepted += sum(result.accepted)
    first = Counter(tokens[0] for tokens in written).most_common(1)[0][0]
    counts = torch.zeros(VOCAB)
    for token in (tokens[1] for tokens in written if tokens[0] == first):
        counts[token] += 1
    *_, (_, logits) = Target(target, 64, None).prefill(torch.tensor([*prompt, first]))
    best = logits[0].topk(4)
    exact = torch.zeros(VOCAB).index_copy(0, best.indices, (best.values / 3).softmax(-1))
    assert p_value(counts, exact) > 1e-3
    colder = torch.zeros(VOCAB).index_copy(0, best.indices, best.values.softmax(-1))
    assert p_value(counts, colder) < 1e-3  # the test can fail
    assert 60 < accepted < 300
