"""The loop with drafts that are accepted never, sometimes and always: exact steps and tokens."""

import gc
import weakref
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
import torch

from specx.decoding.decode import decode
from specx.decoding.drafter import Drafter
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.methods import make_drafter
from specx.decoding.target import Target
from specx.decoding.workspace import WorkspacePool
from specx.errors import DocumentError
from specx.ops.trees import TokenTree
from specx.profile import resolve
from specx.records import FellBack
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.scripted import Scripted, use

TARGET = loaded("llama", 0)
PAIR = pair_of(TARGET)
PROMPT = make_prompt(20, seed=1)
WRONG = 3  # an id that the target does not write here


@pytest.fixture(scope="module")
def text() -> list[int]:
    """What the target writes after the prompt."""
    tokens = run(PAIR, make_profile(max_new_tokens=40), "plain", PROMPT).tokens
    assert len(tokens) == 40
    assert WRONG not in tokens
    assert len(set(tokens[:12])) == 12
    return tokens


def scripted(monkeypatch, text, levels, wrong=lambda _: False) -> Scripted:
    """A drafter that knows the text, and proposes a wrong token at the places ``wrong``."""
    padded = [*text, *[WRONG] * 64]
    drafter = Scripted(levels, lambda place: WRONG if wrong(place) else padded[place])
    return use(monkeypatch, drafter)


def test_plain_decoding_emits_one_token_a_pass(text):
    result = run(PAIR, make_profile(max_new_tokens=9), "plain", PROMPT)
    assert result.tokens == text[:9]
    assert result.lengths == [1] * 8
    assert result.accepted == [0] * 8
    assert {step.drafted for step in result.steps} == {0}
    assert result.reason == "length"


def test_drafts_that_are_always_accepted(text, monkeypatch):
    drafter = scripted(monkeypatch, text, levels=4)
    result = run(PAIR, make_profile(max_new_tokens=21), "tree", PROMPT)
    assert result.tokens == text[:21]
    assert result.lengths == [5, 5, 5, 5]
    assert result.accepted == [4, 4, 4, 4]
    assert {step.drafted for step in result.steps} == {4}
    assert drafter.read == PROMPT
    assert drafter.roots == [text[0], text[5], text[10], text[15]]
    assert drafter.committed == [text[:1], text[1:6], text[6:11], text[11:16], text[16:21]]


def test_drafts_that_are_never_accepted(text, monkeypatch):
    drafter = scripted(monkeypatch, text, levels=4, wrong=lambda _: True)
    result = run(PAIR, make_profile(max_new_tokens=21), "tree", PROMPT)
    assert result.tokens == text[:21]
    assert result.lengths == [1] * 20
    assert result.accepted == [0] * 20
    assert drafter.roots == text[:20]


def test_drafts_that_are_accepted_sometimes(text, monkeypatch):
    """Wrong at places 5, 10 and 15: three drafts and a bonus token, then a bonus token alone."""
    scripted(monkeypatch, text, levels=3, wrong=lambda place: place % 5 == 0)
    result = run(PAIR, make_profile(max_new_tokens=16), "tree", PROMPT)
    assert result.tokens == text[:16]
    assert result.lengths == [4, 1, 4, 1, 4, 1]
    assert result.accepted == [3, 0, 3, 0, 3, 0]


def test_drafts_that_are_right_behind_a_wrong_one_do_not_count(text, monkeypatch):
    scripted(monkeypatch, text, levels=4, wrong=lambda place: place % 3 == 0)
    result = run(PAIR, make_profile(max_new_tokens=10), "tree", PROMPT)
    assert result.tokens == text[:10]
    assert result.lengths == [3, 3, 3]
    assert result.accepted == [2, 2, 2]


class Branching(Scripted):
    """Two levels; the right token is the second child each time, below a decoy and its child."""

    def grow(self, root: torch.Tensor) -> TokenTree:
        chain = super().grow(root)
        right, after = chain.tokens[1:].tolist()
        return TokenTree(
            torch.tensor([int(root), WRONG, right, after, WRONG, after, right]),
            torch.tensor([0, 0, 0, 1, 2, 2, 0]),
            torch.tensor([0, 1, 1, 2, 2, 2, 1]),
            torch.tensor([True] * 6 + [False]),
            levels=3,
        )


def test_the_right_branch_of_a_tree_is_kept(text, monkeypatch):
    use(monkeypatch, Branching(2, lambda place: text[place]))
    result = run(PAIR, make_profile(max_new_tokens=19), "tree", PROMPT)
    assert result.tokens == text[:19]
    assert result.lengths == [3] * 6
    assert {step.drafted for step in result.steps} == {6}


@pytest.mark.parametrize("at", range(1, 11))
def test_nothing_is_emitted_behind_the_end_of_text(text, at, monkeypatch):
    """Wherever it stands in the accepted path: as a draft, and as the bonus token (5 and 10)."""
    pair = pair_of(replace(TARGET, eos_token_ids=frozenset({text[at]})))
    scripted(monkeypatch, text, levels=4)
    result = run(pair, make_profile(max_new_tokens=30), "tree", PROMPT)
    assert result.tokens == text[: at + 1]
    assert result.reason == "end"
    full, rest = divmod(at, 5)
    assert result.lengths == [5] * full + [rest] * (rest > 0)
    assert result.accepted == [4] * full + [rest] * (rest > 0)


def test_any_of_several_ends_of_text_ends_it(text, monkeypatch):
    pair = pair_of(replace(TARGET, eos_token_ids=frozenset({WRONG, text[8], text[7]})))
    scripted(monkeypatch, text, levels=4)
    result = run(pair, make_profile(max_new_tokens=30), "tree", PROMPT)
    assert (result.tokens, result.reason) == (text[:8], "end")


@pytest.mark.parametrize("method", ["plain", "tree"])
def test_the_first_token_may_be_the_end_of_text(text, method, monkeypatch):
    pair = pair_of(replace(TARGET, eos_token_ids=frozenset({text[0]})))
    drafter = scripted(monkeypatch, text, levels=4)
    result = run(pair, make_profile(max_new_tokens=30, below=1.0), method, PROMPT)
    assert (result.tokens, result.reason) == (text[:1], "end")
    assert result.steps == []
    assert drafter.read == []  # no reason to read the prompt


class StopAt:
    """A stop behind the ``at``-th token, from 0; it remembers what it was asked about."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, []

    def __call__(self, token: int):
        self.seen.append(token)
        return "strayed" if len(self.seen) > self.at else None


@pytest.mark.parametrize("at", range(11))
def test_a_stop_cuts_a_step_where_it_cuts_plain_decoding(text, at, monkeypatch):
    profile, plain, ours = make_profile(max_new_tokens=30), StopAt(at), StopAt(at)
    expected = run(PAIR, profile, "plain", PROMPT, plain)
    scripted(monkeypatch, text, levels=4)
    result = run(PAIR, profile, "tree", PROMPT, ours)
    assert result.tokens == expected.tokens == plain.seen == ours.seen == text[: at + 1]
    assert result.reason == expected.reason == "strayed"
    full, rest = divmod(at, 5)
    assert result.lengths == [5] * full + [rest] * (rest > 0)
    assert result.accepted == [4] * full + [rest] * (rest > 0)


@pytest.mark.parametrize(("limit", "reason"), [(7, "strayed"), (6, "length")])
def test_a_stop_at_the_limit_is_a_stop(text, limit, reason, monkeypatch):
    scripted(monkeypatch, text, levels=4)
    assert run(PAIR, make_profile(max_new_tokens=limit), "tree", PROMPT, StopAt(6)).reason == reason


def test_the_end_of_text_is_no_matter_for_a_stop(text, monkeypatch):
    pair = pair_of(replace(TARGET, eos_token_ids=frozenset({text[6]})))
    scripted(monkeypatch, text, levels=4)
    stop = StopAt(6)
    assert run(pair, make_profile(max_new_tokens=30), "tree", PROMPT, stop).reason == "end"
    assert stop.seen == text[:6]


@pytest.mark.parametrize("limit", range(1, 13))
def test_the_token_limit_cuts_a_step(text, limit, monkeypatch):
    scripted(monkeypatch, text, levels=4)
    result = run(PAIR, make_profile(max_new_tokens=limit), "tree", PROMPT)
    assert (result.tokens, result.reason) == (text[:limit], "length")
    full, rest = divmod(limit - 1, 5)
    assert result.lengths == [5] * full + [rest] * (rest > 0)
    # All tokens of a step that was cut are drafts: the bonus token fell off.
    assert result.accepted == [4] * full + [rest] * (rest > 0)


@pytest.mark.parametrize("room", [1, 2, 5, 6, 7])
@pytest.mark.parametrize("method", ["plain", "tree"])
def test_the_window_ends_the_text(text, method, room, monkeypatch):
    if method == "tree":
        scripted(monkeypatch, text, levels=4)
    profile = make_profile(window=len(PROMPT) + room, max_new_tokens=30)
    result = run(PAIR, profile, method, PROMPT)
    assert (result.tokens, result.reason) == (text[:room], "window")


def test_the_window_of_the_model_ends_the_text_too(text, monkeypatch):
    scripted(monkeypatch, text, levels=4)
    pair = pair_of(replace(TARGET, window=len(PROMPT) + 8))
    result = run(pair, make_profile(max_new_tokens=30, window=1000), "tree", PROMPT)
    assert (result.tokens, result.reason) == (text[:8], "window")
    assert resolve(make_profile(window=1000), "plain", pair.facts).window == len(PROMPT) + 8
    assert resolve(make_profile(window=9), "plain", pair.facts).window == 9


@pytest.mark.parametrize(("prompt", "window"), [(PROMPT, 20), (PROMPT, 3), ([], None)])
def test_a_prompt_without_room_behind_it_is_refused(prompt, window):
    with pytest.raises(DocumentError, match=f"{len(prompt)} tokens"):
        run(PAIR, make_profile(window=window), "plain", prompt)


def test_the_end_of_text_wins_over_the_limit(text, monkeypatch):
    pair = pair_of(replace(TARGET, eos_token_ids=frozenset({text[7]})))
    scripted(monkeypatch, text, levels=4)
    assert run(pair, make_profile(max_new_tokens=8), "tree", PROMPT).reason == "end"
    assert run(pair, make_profile(max_new_tokens=7), "tree", PROMPT).reason == "length"


def test_retrieval_runs_when_the_drafter_says_it_is_due(text, monkeypatch):
    drafter = scripted(monkeypatch, text, levels=1)
    run(PAIR, make_profile(max_new_tokens=15), "tree", PROMPT)
    assert drafter.retrieved_after == [2, 4, 6]


def test_a_fallback_leaves_the_rest_to_the_target(text, monkeypatch):
    """Three tokens are measured, 17 steps drafted; of 40 tokens 19 are left to the target."""
    drafter = scripted(monkeypatch, text, levels=2, wrong=lambda _: True)
    monkeypatch.setattr("specx.decoding.tuner.MOST_LOSS", float("inf"))  # of so short a text
    result = run(PAIR, make_profile(max_new_tokens=40, below=1e9), "tree", PROMPT)
    assert result.tokens == text
    assert drafter.read == [*PROMPT, *text[:3]]
    assert [step.drafted for step in result.steps] == [0] * 3 + [2] * 17 + [0] * 19


def test_the_events_come_in_order(monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 8)
    pair = pair_of(TARGET, loaded("llama", 5))
    names = [
        f"{event.model} {event.done}/{event.total}" if hasattr(event, "done")
        else type(event).__name__
        for event in run(pair, make_profile(max_new_tokens=3), "tree", PROMPT).events
    ]  # fmt: skip
    assert names == [
        "target 8/20", "target 16/20", "target 20/20", "Step",
        "draft 8/20", "draft 16/20", "draft 20/20", "Step", "Step", "Finished",
    ]  # fmt: skip


@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_every_part_of_the_time_is_claimed_once(penalty):
    pair = pair_of(TARGET, loaded("llama", 5))
    profile = make_profile(cache={"chunk": 4, "top_k": 2}, repetition_penalty=penalty)
    timings = run(pair, profile, "specextend", PROMPT).timings
    parts = {name: seconds for name, seconds in vars(timings).items() if name != "total"}
    assert sum(parts.values()) == pytest.approx(timings.total)
    idle = {name for name, seconds in parts.items() if seconds == 0}
    before = {"read", "tokenize", "load", "sources"}
    assert idle == (before if penalty > 1 else before | {"penalties"})


@pytest.mark.every(3)
@pytest.mark.parametrize("events", [2, 4, None], ids=["in prefill", "in steps", "to the end"])
@pytest.mark.parametrize("method", ["plain", "tree", "specextend", "specextend+lookup"])
def test_the_caches_die_with_the_document(method, events):
    """At once: gigabytes of a GPU must not wait for the garbage collector."""
    caches: list[weakref.ref[PreallocatedCache]] = []

    def watched(model, capacity, layer):
        target = Target(model, capacity, layer)
        caches.append(weakref.ref(target.cache))
        return target

    pair = pair_of(TARGET, loaded("llama", 1))
    settings = resolve(make_profile(max_new_tokens=8), method, pair.facts)
    gc.disable()
    try:
        make = partial(make_drafter, settings, pair)
        decoding = decode(pair, settings, PROMPT, make_drafter=make, make_target=watched)
        for _ in islice(decoding, events):
            assert caches[0]() is not None
        del decoding, make
        assert caches[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("method", ["specextend", "specextend+lookup"])
def test_a_fallback_frees_what_drafting_needed(method, kept):
    """At once, too, unless the next document may take it."""
    drafters: list[weakref.ref[Drafter]] = []
    pair, pool = pair_of(TARGET, loaded("llama", 1)), WorkspacePool() if kept else None
    settings = resolve(make_profile(max_new_tokens=40, below=1e9), method, pair.facts)

    def watched(max_tokens):
        drafter = make_drafter(settings, pair, max_tokens)
        drafters.append(weakref.ref(drafter))
        return drafter

    gc.disable()
    try:
        events = decode(pair, settings, PROMPT, pool=pool, make_drafter=watched)
        assert any(isinstance(event, FellBack) for event in events)
        assert len(list(islice(events, 3))) == 3
        assert (drafters[0]() is not None) == kept
    finally:
        gc.enable()
