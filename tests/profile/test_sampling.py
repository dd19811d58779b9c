"""Who decides how tokens are chosen: command line, profile, the model's file, specx."""

import pytest

from specx.profile import (
    DigestPrompt,
    GenerationSettings,
    Profile,
    Sampling,
    TargetSettings,
    resolve_sampling,
)

STATED = GenerationSettings(temperature=0.7, top_k=20, repetition_penalty=1.05, suppress_tokens=[3])


def profile(**generation) -> Profile:
    target = TargetSettings(model="m")
    settings = GenerationSettings(**generation)
    return Profile(name="tiny", target=target, draft=None, generation=settings)


def test_the_profile_is_asked_before_the_model_and_the_model_before_specx():
    found, _ = resolve_sampling(profile(temperature=0.0, seed=4, min_p=0.1), STATED)
    assert found == Sampling(
        temperature=0.0, top_k=20, repetition_penalty=1.05, suppress_tokens=(3,), seed=4, min_p=0.1
    )
    assert resolve_sampling(profile())[0] == Sampling()


def test_the_sources_are_named():
    settings = profile(temperature=0.0, min_p=0.1)
    _, found = resolve_sampling(settings, STATED, frozenset({"temperature", "max_new_tokens"}))
    assert found["temperature"] == "command line"
    assert found["min_p"] == "profile"
    assert found["top_k"] == "model"
    assert found["presence_penalty"] == "specx"
    assert set(found) == set(vars(Sampling()))


def test_a_digest_copies_whatever_the_model_says():
    digest = profile().changed(prompt=DigestPrompt())
    found, origins = resolve_sampling(digest, STATED)
    assert found == Sampling()
    assert "model" not in origins.values()


@pytest.mark.parametrize("key", ["repetition_penalty", "presence_penalty", "no_repeat_ngram"])
def test_a_resolved_profile_resolves_to_itself(key):
    found, _ = resolve_sampling(profile(**{key: 2}), STATED)
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(found).items()}
    assert resolve_sampling(profile(**values), STATED)[0] == found
    assert found.penalizes
