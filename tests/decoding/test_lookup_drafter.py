"""Lookup alone and beside a draft model: the text stays plain decoding's."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle

import pytest
import torch

from specx.decoding import decode as loop
from specx.decoding.lookup import REACH
from specx.decoding.lookup_drafter import JoinedDrafter
from specx.decoding.methods import Pair, make_drafter
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.pipeline import Pipeline
from specx.decoding.target import Target
from specx.decoding.tuner import Tuner
from specx.errors import UsageError
from specx.ops.contract import HAS_TRITON
from specx.ops.torch.trees import best_tree
from specx.ops.trees import Path
from specx.profile import resolve
from tests.decoding.pairs import check, loaded, make_profile, make_prompt, on_triton, pair_of, run
from tests.decoding.trigrams import random_table, trigram_model
from tests.ops.test_trees import paths_of
from tests.pairwise import every_other

METHODS = ["lookup", "specextend+lookup"]
SURE = {"seed": 0, "peak": 5.0, "attention": 0.04}  # a target with clear winners
LIKE_IT = {**SURE, "noise": 0.02}  # a draft that is right more often than not
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}
LONG = {"nodes": 9, "depth": 8, "threshold": 0.0}
FULL = {"policy": "full", "window": None}  # trigram models have no attention to watch

Alternation = Callable[[str], None]


@pytest.fixture
def alternate(monkeypatch) -> Alternation:
    """Who drafts, by a pattern: ``m`` for the model, ``l`` for lookup alone."""

    def use(pattern: str) -> None:
        turns = cycle(pattern)
        monkeypatch.setattr(Tuner, "model_drafts", lambda _: next(turns) == "m")

    return use


def repeating_pair(draft_seed: int = 3) -> Pair:
    """A target that soon repeats itself, as it has 36 states, and a draft that knows nothing."""
    mask = torch.ones(6, dtype=torch.bool)
    target, draft = (trigram_model(random_table(6, seed)) for seed in (0, draft_seed))
    return Pair(target, mask, draft, mask)


def test_a_text_that_repeats_itself_is_looked_up():
    profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=120)
    result = check(repeating_pair(), "lookup", profile, [2, 4, 1])
    assert result.accepted[-4:-1] == [REACH] * 3  # the last is cut
    assert min(result.accepted) == 0


def test_lookup_helps_a_draft_that_is_always_wrong(alternate):
    alternate("m")
    profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=120)
    pair = repeating_pair()
    assert len(run(pair, profile, "specextend+lookup", [2, 4, 1]).steps) < 0.6 * len(
        run(pair, profile, "specextend", [2, 4, 1]).steps
    )


@pytest.mark.parametrize("pattern", ["m", "l", "ml", "mlllllll", "l" * 40 + "mm"])
def test_the_text_is_the_targets_whoever_drafts(pattern, alternate):
    alternate(pattern)
    profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=150)
    result = check(repeating_pair(), "specextend+lookup", profile, [2, 4, 1])
    assert len(set(result.accepted)) > 1  # some drafts were right and some were not
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    cache = {**SMALL_CACHE, "every": 3}
    profile = make_profile(cache=cache, tree={"nodes": 6, "depth": 4}, max_new_tokens=60)
    check(pair, "specextend+lookup", profile, make_prompt(60))


def test_a_draft_that_is_the_target_is_always_right(alternate):
    """However long the model was left out, it has read all of the text when it drafts again."""
    model = loaded(**SURE)
    cache = {"chunk": 8, "top_k": 50, "every": 1, "window": None}
    profile = make_profile(tree={"nodes": 12, "depth": 4}, cache=cache, max_new_tokens=81)
    for pattern in ("m", "lm", "lllm", "l" * 40 + "m" * 20):
        alternate(pattern)
        result = check(pair_of(model, model), "specextend+lookup", profile, make_prompt(40))
        whole = [step.accepted for step in result.steps[:-1] if step.drafted == 12]
        assert whole
        assert set(whole) == {4}


@pytest.mark.parametrize(("method", "length"), every_other(METHODS, [1, 2, 3, 7, 8, 9, 40]))
def test_texts_shorter_than_a_suffix(method, length):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    check(pair, method, make_profile(cache=SMALL_CACHE), make_prompt(length))
    check(pair, method, make_profile(cache=SMALL_CACHE), [9] * length)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.99, 5.0])
@pytest.mark.parametrize("method", METHODS)
def test_thresholds(method, threshold, alternate):
    alternate("mll")
    profile = make_profile(tree={**LONG, "threshold": threshold}, cache=FULL, max_new_tokens=80)
    result = check(repeating_pair(), method, profile, [2, 4, 1])
    drafted = {step.drafted for step in result.steps}
    if method == "lookup":
        assert drafted == {REACH} if threshold == 0 else drafted == {0} if threshold > 1 else (
            len(drafted) > 2
        )  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_text_inside_a_chain(method, alternate):
    alternate("ml")
    pair, profile = repeating_pair(), make_profile(tree=LONG, cache=FULL, max_new_tokens=120)
    text = run(pair, profile, "plain", [2, 4, 1]).tokens
    last = max(range(len(text)), key=lambda place: text.index(text[place]))  # the rarest to come
    ending = replace(pair, target=replace(pair.target, eos_token_ids=frozenset({text[last]})))
    result = check(ending, method, profile, [2, 4, 1])
    assert result.reason == "end"
    seen_before = [2, 4, 1, *text, *text]  # now the prompt holds the end, too
    result = check(ending, method, profile, seen_before)
    assert result.tokens[-1] == text[last]
    assert result.tokens.count(text[last]) == 1


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_steps_launched_ahead(method, ahead, monkeypatch, alternate):
    alternate("mlllll")
    monkeypatch.setattr(loop, "Pipeline", partial(Pipeline, ahead=ahead))
    profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=100)
    check(repeating_pair(), method, profile, [2, 4, 1])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_writes_the_same_text(method, alternate):
    alternate("mll")
    texts = set()
    for seed in range(4):
        profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=60, temperature=0.7, seed=seed)
        result = check(repeating_pair(0), method, profile, [2, 4, 1])
        assert sum(result.accepted) > 0
        texts.add(tuple(result.tokens))
    assert len(texts) == 4


@pytest.mark.parametrize("method", METHODS)
def test_a_fallback_in_the_midst(method):
    profile = make_profile(max_new_tokens=60, below=1e9)
    result = check(pair_of(loaded(), loaded(seed=5)), method, profile, make_prompt(20) * 2)
    assert len(result.fell_back) == 1


@pytest.mark.parametrize(
    ("policy", "nodes"), every_other(["full", "streaming", "cross-model"], [2, 3, 63])
)
def test_caches_and_trees(policy, nodes, alternate):
    alternate("mllllllllll")
    model, sizes = loaded(**SURE), {"nodes": nodes, "depth": min(nodes, 9)}
    cache = {"policy": policy, "chunk": 4, "top_k": 2, "every": 7, "window": None}
    profile = make_profile(tree=sizes, cache=cache, max_new_tokens=120)
    check(pair_of(model, model), "specextend+lookup", profile, make_prompt(33))


@pytest.mark.parametrize(("pattern", "every"), [("l", 8), ("lllllllm", 40)])
def test_the_working_cache_holds_all_that_lookup_wrote_between_two_retrievals(
    pattern, every, alternate
):
    """Its steps have up to 32 tokens, those of the model four."""
    alternate(pattern)
    cache = {"policy": "streaming", "chunk": 4, "top_k": 3, "every": every, "window": None}
    tree = {"nodes": 6, "depth": 3, "threshold": 0.0}
    profile = make_profile(tree=tree, cache=cache, max_new_tokens=700)
    check(repeating_pair(), "specextend+lookup", profile, [2, 4, 1])


def test_a_tree_of_one_node_has_no_room_for_a_branch():
    profile = make_profile(tree={"nodes": 1, "depth": 1})
    with pytest.raises(UsageError, match="at least 2"):
        run(repeating_pair(), profile, "specextend+lookup", [2, 4, 1])


def test_lookup_needs_no_draft():
    pair = repeating_pair()
    alone = Pair(pair.target, pair.target_allowed)
    profile = make_profile(tree=LONG, cache=FULL, max_new_tokens=60)
    assert len(check(alone, "lookup", profile, [2, 4, 1]).steps) < 50
    with pytest.raises(UsageError, match="only --method plain and lookup can run"):
        run(alone, profile, "specextend+lookup", [2, 4, 1])


def joined_and_alone(text: list[int]) -> tuple[JoinedDrafter, Callable[[list[int]], ModelDrafter]]:
    """A joined drafter behind a text, and what makes a drafter that has read a text at once."""
    model = loaded(**LIKE_IT)
    pair = pair_of(loaded(**SURE), model)
    cache = {"policy": "full", "window": None}
    profile = make_profile(tree={"nodes": 6, "depth": 4}, cache=cache)

    def begun(method: str, prompt: list[int]):
        drafter = make_drafter(resolve(profile, method, pair.facts), pair, 400)
        target = Target(pair.target, 500, None)
        list(target.prefill(torch.tensor(prompt)))
        list(drafter.prefill(torch.tensor(prompt[:-1]), target))
        drafter.commit(Path.of(torch.tensor(prompt[-1:])))
        return drafter

    return begun("specextend+lookup", text), partial(begun, "tree")


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("skipped", [0, 1, 3, 7, 8, 60])
def test_what_the_model_missed_it_reads_before_it_drafts(skipped, told):
    """Its levels are those of a model that read everything as it came.

    ``told``: whether it hears how many tokens each step had.
    """
    text = make_prompt(30)
    joined, reads_at_once = joined_and_alone(text)
    generator = torch.Generator().manual_seed(skipped)
    behind = []
    for number in range(skipped):
        behind.append(joined.begin_step(alone=True))
        if behind[-1]:
            joined.catch_up()
        joined.look_up(torch.tensor(text[-1:]))
        count = int(torch.randint(1, 6, (1,), generator=generator))
        tokens = make_prompt(count, seed=number)
        padded = torch.tensor([*tokens, *tokens[-1:] * (5 - count)])
        joined.commit(Path(torch.zeros_like(padded), padded, torch.tensor(count)))
        text = text + tokens
        if told:
            joined.end_step(count)
    if late := joined.begin_step(alone=False):
        joined.catch_up()
    root, levels, grow_levels = torch.tensor(text[-1:]), [], joined._model.grow_levels
    joined._model.grow_levels = lambda: levels.extend(grow_levels()) or levels
    joined.grow(root)
    fresh = reads_at_once(text)
    expected = dict(zip(range(4), fresh.grow_levels(), strict=True))
    for number, level in enumerate(levels):
        kept = expected[number].best(5)
        assert torch.equal(level.tokens[:2], kept.tokens[:2])
        torch.testing.assert_close(level.weights[:2], kept.weights[:2], atol=1e-4, rtol=1e-4)
    assert paths_of(best_tree(root, levels))
    assert late == (1 + len(text) - 30 > 5 if told else skipped > 0)
    # 32 tokens a step at most, 3 on average
    assert sum(behind) == (0 if told else max(0, skipped - 1) // 7)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the real kernels")
def test_the_kernels_serve_it(alternate):
    cache = {"chunk": 4, "top_k": 2, "every": 2, "layer": 1}
    profile = make_profile(cache=cache, tree={"nodes": 4, "depth": 2}, max_new_tokens=5)
    pair = pair_of(loaded(), loaded(seed=5))
    prompt = make_prompt(4) * 3
    alternate("ml")
    expected = run(pair, profile, "specextend+lookup", prompt)
    alternate("ml")
    actual = run(on_triton(pair), profile, "specextend+lookup", prompt)
    assert actual.tokens == expected.tokens
    assert actual.accepted == expected.accepted
