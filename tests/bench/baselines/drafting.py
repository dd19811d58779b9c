"""Baselines on tiny random pairs, held against plain decoding."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from specx.decoding.decode import decode
from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.profile import Profile, Settings, resolve
from specx.records import Method
from tests.decoding.pairs import Run, allowed, collect, loaded, make_profile, pair_of, run_plain
from tests.decoding.test_lossless import LIKE_IT, SMALL_CACHE, SURE
from tests.tiny import VOCAB

EVERYTHING = {"chunk": 8, "top_k": 50, "every": 2, "window": None}  # no chunk is left out


def likely_pair(family: str = "llama") -> Pair:
    """A target with clear winners, and a draft that is right more often than not."""
    return pair_of(loaded(family, **SURE), loaded(family, **LIKE_IT))


def small_profile(cache: dict[str, Any] | None = None, **settings: Any) -> Profile:
    """Few chunks, so that what is drafted is wrong at times."""
    settings = {"max_new_tokens": 40, **settings}
    return make_profile(cache={**SMALL_CACHE, **(cache or {})}, **settings)


def resolved(profile: Profile, pair: Pair, method: Method | None = None) -> Settings:
    """The settings of a drafter, by default those of a draft that retrieves if there is one."""
    return resolve(profile, method or ("specextend" if pair.draft else "plain"), pair.facts)


def check(
    make: Callable[[int], Drafter], pair: Pair, profile: Profile, prompt: Sequence[int]
) -> Run:
    """The run with a drafter, after comparing it with plain decoding."""
    expected = run_plain(pair, profile, prompt)
    result = collect(decode(pair, resolved(profile, pair, "plain"), prompt, make_drafter=make))
    assert result.tokens == expected.tokens
    assert result.reason == expected.reason
    return result


def forbidding(pair: Pair, tokens: Sequence[int]) -> Pair:
    """The pair whose target never drafts ``tokens``."""
    rest = [token for token in range(VOCAB) if token not in tokens]
    return replace(pair, target_allowed=allowed(pair.target, rest))
