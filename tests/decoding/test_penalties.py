"""Penalties: plain text is that of transformers, and every method writes the plain text."""

from collections import Counter
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from specx.profile import resolve
from tests.decoding.chi_square import p_value
from tests.decoding.pairs import check, loaded, make_profile, make_prompt, on_triton, pair_of, run
from tests.decoding.test_head_lossless import KINDS, apt_pair
from tests.decoding.test_lossless import DRAFTS, FAMILIES, LIKE_IT, SMALL_CACHE, SURE
from tests.decoding.test_sampling import (
    ALLOWED,
    CHANCE,
    PROMPT,
    TARGET_TABLE,
    sample,
    warped,
)
from tests.pairwise import every_other
from tests.tiny import make_model

METHODS = ["tree", "streaming", "specextend", "lookup", "specextend+lookup"]
SETTINGS = {
    "repetition": {"repetition_penalty": 1.3},
    "wanted repetition": {"repetition_penalty": 0.9},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.6},
    "n-grams": {"no_repeat_ngram": 3},
    "single tokens": {"no_repeat_ngram": 1},
    "suppressed": {"suppress_tokens": [*range(100, 200)], "begin_suppress_tokens": [*range(60)]},
    "sampled": {"temperature": 0.8, "min_p": 0.05, "repetition_penalty": 1.1},
    "all": {
        "temperature": 1.0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "no_repeat_ngram": 2,
    },
}
GREEDY = [name for name, settings in SETTINGS.items() if "temperature" not in settings]


class OutputPenalty(LogitsProcessor):
    """Presence and frequency as vLLM defines them, which transformers has not."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self.prompt, self.presence, self.frequency = prompt, presence, frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for i, count in Counter(input_ids[0, self.prompt :].tolist()).items():
            scores[0, i] -= self.frequency * count + self.presence
        return scores


@cache
def unpenalized(family: str) -> list[int]:
    return generated(family, make_prompt(30), {}, 40)


def generated(family: str, prompt: list[int], settings: dict, tokens: int) -> list[int]:
    """The text of transformers' own ``generate``."""
    given = dict(settings)
    penalty = OutputPenalty(
        len(prompt), given.pop("presence_penalty", 0.0), given.pop("frequency_penalty", 0.0)
    )
    if "no_repeat_ngram" in given:
        given["no_repeat_ngram_size"] = given.pop("no_repeat_ngram")
    output = make_model(family, 0).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=tokens,
        logits_processor=LogitsProcessorList([penalty]),
        **given,
    )
    return output[0, len(prompt) :].tolist()


@pytest.mark.every(2)
@pytest.mark.parametrize(("family", "settings"), every_other(FAMILIES, GREEDY))
def test_plain_text_is_what_generate_writes(family, settings):
    prompt, generation = make_prompt(30), SETTINGS[settings]
    ours = run(pair_of(loaded(family)), make_profile(max_new_tokens=40, **generation), "plain",
               prompt).tokens  # fmt: skip
    assert ours == generated(family, prompt, generation, 40)
    if settings != "n-grams":  # which these texts have not
        assert ours != unpenalized(family)


# Every method meets every family in test_lossless, and every family most settings above.
@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("family", "method", "settings"),
    [
        (FAMILIES[place % len(FAMILIES)], *cell)
        for place, cell in enumerate(every_other(METHODS, SETTINGS))
    ],
)
def test_every_method_writes_the_plain_text(family, method, settings):
    pair = pair_of(loaded(family, **SURE), loaded(DRAFTS.get(family, family), **LIKE_IT))
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=40, **SETTINGS[settings])
    result = check(pair, method, profile, make_prompt(20, seed=1) * 3)
    assert sum(result.accepted) > 0 or method in ("streaming", "lookup")


WITH_A_HEAD = every_other([method for method in METHODS if method != "lookup"], SETTINGS)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("kind", "method", "settings"),
    [(KINDS[place // 2 % 2], *cell) for place, cell in enumerate(WITH_A_HEAD)],
)
def test_every_method_with_a_head_writes_the_plain_text(kind, method, settings):
    profile = make_profile(
        cache={**SMALL_CACHE, "layer": 0}, max_new_tokens=40, **SETTINGS[settings]
    )
    result = check(apt_pair(kind), method, profile, make_prompt(60))
    assert sum(result.accepted) > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["plain", "tree"])
def test_triton_writes_the_same(method):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=5, **SETTINGS["all"])
    prompt = make_prompt(10) * 2
    assert run(on_triton(pair), profile, method, prompt).tokens == (
        run(pair, profile, method, prompt).tokens
    )


def test_a_fallback_goes_on_with_the_text_so_far():
    pair = pair_of(loaded(**SURE), loaded(seed=5))
    profile = make_profile(max_new_tokens=60, below=1e9, **SETTINGS["all"])
    result = run(pair, profile, "tree", make_prompt(40))
    assert result.fell_back
    assert result.tokens == run(pair, profile, "plain", make_prompt(40)).tokens


@pytest.mark.parametrize(
    ("settings", "penalizes"),
    [({}, False), ({"repetition_penalty": 1.0}, False), ({"no_repeat_ngram": 2}, True)],
)
def test_only_penalties_that_do_something_cost_anything(settings, penalizes):
    pair = pair_of(loaded())
    assert resolve(make_profile(**settings), "plain", pair.facts).sampling.penalizes == penalizes


PENALIZED = [
    {"temperature": 1.0, "repetition_penalty": 1.5, "min_p": 0.1},
    {"temperature": 0.8, "presence_penalty": 1.0, "frequency_penalty": 0.5},
]


def exact(temperature, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
          frequency_penalty=0.0) -> Tensor:  # fmt: skip
    """Probabilities of all texts of three tokens, by the definitions: [5 · 5 · 5]."""

    def probabilities(text: list[int]) -> Tensor:
        logits = TARGET_TABLE[text[-2], text[-1], :ALLOWED].clone()
        for i in set(text):
            logits[i] *= repetition_penalty if logits[i] < 0 else 1 / repetition_penalty
        for i, count in Counter(text[len(PROMPT) :]).items():
            logits[i] -= frequency_penalty * count + presence_penalty
        found = warped(logits, temperature)
        found[found < min_p * found.max()] = 0
        return found / found.sum()

    chances = torch.zeros(ALLOWED, ALLOWED, ALLOWED, dtype=torch.float64)
    for a in range(ALLOWED):
        first = probabilities(PROMPT)[a]
        for b in range(ALLOWED) if first else ():
            second = probabilities([*PROMPT, a])[b]
            if second:
                chances[a, b] = first * second * probabilities([*PROMPT, a, b])
    return chances.flatten()


@pytest.mark.parametrize(
    ("draft", "settings"),
    [
        pytest.param("good", PENALIZED[0], marks=pytest.mark.slow),
        ("adversarial", PENALIZED[1]),
    ],
)
def test_texts_are_distributed_by_the_definitions(draft, settings):
    counts, _ = sample(draft, samples=300, **settings)
    assert p_value(counts, exact(**settings)) > CHANCE
    # Control: as many samples tell this distribution from one without penalties.
    assert p_value(counts, exact(settings["temperature"])) < 1e-6
