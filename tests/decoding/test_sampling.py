"""Sampling: the distribution of whole texts, the same text for every method, and the warpers."""

import pytest
import torch
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specx.decoding.methods import Pair
from specx.decoding.sampling import Sampler
from specx.decoding.sampling import warped as warped_logits
from specx.ops.torch.backend import TorchOps
from specx.ops.trees import TokenTree
from specx.profile import Sampling
from tests.decoding.chi_square import p_value
from tests.decoding.pairs import check, loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.trigrams import random_table, trigram_model
from tests.pairwise import every_other
from tests.tiny import make_model

VOCABULARY, ALLOWED = 7, 5  # the last two ids are outside the tokenizer
PROMPT = [2, 4, 1]
LENGTH = 3
SAMPLES = 1500  # and some hundred less where the controls are still noticed
CHANCE = 1e-3  # a correct sampler fails once in a thousand seeds; the seeds are fixed

TARGET_TABLE = random_table(VOCABULARY, seed=0)
TARGET_TABLE[..., ALLOWED:] = 5.0  # they would win
DRAFTS = {
    "good": TARGET_TABLE + 0.3 * random_table(VOCABULARY, seed=1),
    "bad": random_table(VOCABULARY, seed=2),
    "adversarial": -3 * TARGET_TABLE,  # proposes what the target likes least
}
WARPINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.85},
    {"temperature": 1.3, "top_k": 3},
    {"temperature": 0.8, "top_p": 0.9, "top_k": 4},
    {"temperature": 0.9, "top_p": 0.95, "min_p": 0.2},
]

OPS = TorchOps()


def trigram_pair(draft: str) -> Pair:
    mask = torch.arange(VOCABULARY) < ALLOWED
    target, drafter = trigram_model(TARGET_TABLE), trigram_model(DRAFTS[draft])
    return Pair(target, mask, drafter, mask)


def all_of(row: torch.Tensor) -> torch.Tensor:
    """Every id of a row is allowed."""
    return torch.ones_like(row, dtype=torch.bool)


def warped(logits, temperature, top_p=1.0, top_k=0, min_p=0.0):
    """Probabilities by the definitions: temperature, then the k best, then the smallest set that
    holds the share ``top_p``, of these what has ``min_p`` of the likeliest one's."""
    order = logits.argsort(descending=True).tolist()
    probabilities = (logits.double() / temperature).softmax(-1)
    if top_k:
        probabilities[order[top_k:]] = 0
        probabilities /= probabilities.sum()
    kept, share = 0, 0.0
    while share < top_p - 1e-9:
        share += float(probabilities[order[kept]])
        kept += 1
        if kept == len(order):
            break
    probabilities[order[kept:]] = 0
    probabilities[probabilities < min_p * probabilities.max()] = 0
    return probabilities / probabilities.sum()


def exact(**warping) -> torch.Tensor:
    """Probabilities of all texts of three tokens: [5 · 5 · 5]."""
    table = TARGET_TABLE[:ALLOWED, :ALLOWED, :ALLOWED]
    rows = torch.stack([warped(row, **warping) for row in table.reshape(-1, ALLOWED)])
    step = rows.reshape(ALLOWED, ALLOWED, ALLOWED)
    before, last = PROMPT[-2:]
    texts = (
        step[before, last][:, None, None] * step[last][:, :, None] * step
    )  # P(a) P(b | a) P(c | a, b)
    return texts.flatten()


def sample(draft: str, method="tree", samples=SAMPLES, **generation):
    """How often each text was written, and how many drafts were accepted."""
    pair, counts, accepted = trigram_pair(draft), torch.zeros(ALLOWED**LENGTH), 0
    for seed in range(samples):
        profile = make_profile(
            tree={"nodes": 4, "depth": 2}, max_new_tokens=LENGTH, seed=seed, **generation
        )
        result = run(pair, profile, method, PROMPT)
        a, b, c = result.tokens
        counts[(a * ALLOWED + b) * ALLOWED + c] += 1
        accepted += sum(result.accepted)
    return counts, accepted / samples


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draft", "warping", "samples"),
    [
        ("bad", WARPINGS[3], 500),
        pytest.param("adversarial", WARPINGS[2], 1000, marks=pytest.mark.slow),
        pytest.param("good", WARPINGS[4], 600, marks=pytest.mark.slow),
        *(
            pytest.param(draft, WARPINGS[number], SAMPLES, marks=pytest.mark.slow)
            for draft, number in (("good", 0), ("bad", 0), ("adversarial", 0), ("good", 1))
        ),
    ],
)
def test_texts_are_distributed_as_the_targets_own(draft, warping, samples):
    counts, accepted = sample(draft, samples=samples, **warping)
    assert p_value(counts, exact(**warping)) > CHANCE
    assert accepted > 0.5 if draft != "adversarial" else accepted < 0.1
    # Control: as many samples tell this distribution from a slightly warmer one.
    warmer = {**warping, "temperature": warping["temperature"] * 1.5}
    assert p_value(counts, exact(**warmer)) < 1e-6


@pytest.mark.slow
def test_a_draft_that_had_a_say_would_be_noticed(monkeypatch):
    """Control: a rule that takes the draft's best child one time in ten, in the real loop."""

    accept = TorchOps.accept

    def biased(_: TorchOps, tree: TokenTree, choices: torch.Tensor):
        generator = torch.Generator().manual_seed(int(choices.sum()) + int(tree.tokens.sum()))
        if tree.nodes and torch.rand(1, generator=generator) < 0.1:
            choices = choices.clone()
            choices[0] = tree.tokens[1]
        return accept(tree, choices)

    monkeypatch.setattr(TorchOps, "accept", biased)
    counts, _ = sample("adversarial", temperature=1.0)
    assert p_value(counts, exact(temperature=1.0)) < 1e-6


def recursive_rejection(target, draft, children, generator) -> int:
    """The rule for children that were sampled from the draft, used on children that were not."""
    target, draft = target.clone(), draft.clone()
    for child in children:
        if torch.rand(1, generator=generator) < target[child] / draft[child]:
            return child
        target = (target - draft).clamp(min=0)
        target, draft[child] = target / target.sum(), 0
        draft = draft / draft.sum()
    return int(torch.multinomial(target, 1, generator=generator))


def test_the_rule_is_exact_where_recursive_rejection_is_biased():
    """One level with the draft's two best tokens as children."""
    target = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draft = torch.tensor([0.4, 0.3, 0.2, 0.1])
    tree = TokenTree(
        torch.tensor([0, 0, 1]),
        torch.tensor([0, 0, 0]),
        torch.tensor([0, 1, 1]),
        torch.tensor([True] * 3),
        levels=1,
    )
    generator = torch.Generator().manual_seed(0)
    settings = Sampling(temperature=1.0)
    sampler = Sampler(settings, all_of(target), 2000, OPS)
    choices = sampler.choose(target.log().expand(2000, -1), 0, torch.arange(2000))
    ours, biased = torch.zeros(4), torch.zeros(4)
    for choice in choices.tolist():
        ours[int(OPS.accept(tree, torch.tensor([choice, 0, 0])).tokens[0])] += 1
        biased[recursive_rejection(target, draft, [0, 1], generator)] += 1
    assert p_value(ours, target) > CHANCE
    assert p_value(biased, target) < 1e-9


@pytest.mark.parametrize(
    ("method", "warping"), every_other(["tree", "streaming", "specextend"], WARPINGS)
)
def test_the_same_seed_writes_the_same_text(method, warping):
    weights = {"seed": 0, "attention": 0.1}
    pair = pair_of(loaded(**weights, peak=2.0), loaded(**weights, peak=2.0, noise=0.005))
    texts = set()
    for seed in range(4):
        profile = make_profile(
            cache={"chunk": 4, "top_k": 6, "every": 2}, max_new_tokens=20, seed=seed, **warping
        )
        texts.add(tuple(check(pair, method, profile, make_prompt(40)).tokens))
    assert len(texts) == 4  # and another seed writes another text


def test_the_same_seed_writes_the_same_text_when_drafting_stops():
    pair = pair_of(loaded(), loaded(seed=5))
    profile = make_profile(max_new_tokens=30, temperature=1.0, below=1e9)
    result = run(pair, profile, "tree", make_prompt(40))
    assert len(result.fell_back) == 1
    assert result.tokens == run(pair, profile, "plain", make_prompt(40)).tokens


@pytest.mark.parametrize("warping", WARPINGS)
def test_draws_follow_the_scores_that_generate_would_draw_from(warping):
    """transformers' own sampling, up to the probabilities that it would draw from."""
    output = make_model(seed=3).generate(
        torch.tensor([make_prompt(12)]),
        attention_mask=torch.ones(1, 12, dtype=torch.int64),
        do_sample=True,
        max_new_tokens=1,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **{"top_k": 0, **warping},
    )
    probabilities = output.scores[0][0].softmax(-1)
    draws = 20_000
    sampler = Sampler(Sampling(**warping), all_of(probabilities), draws, OPS)
    tokens = sampler.choose(output.logits[0].expand(draws, -1), 0, torch.arange(draws))
    counts = torch.bincount(tokens, minlength=len(probabilities))
    assert p_value(counts, probabilities) > CHANCE
    shifted = 0.9 * probabilities + 0.1 * probabilities.roll(1)
    assert p_value(counts, shifted) < 1e-6  # control


WARPERS = {
    "temperature": TemperatureLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
}


@pytest.mark.parametrize(
    "settings",
    [
        *WARPINGS,
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 2.0, "top_k": 900, "min_p": 1},
    ],
)
@pytest.mark.parametrize("rounded", [False, True], ids=["all differ", "many are equal"])
def test_what_is_drawn_from_is_what_the_warpers_of_transformers_leave(settings, rounded):
    logits = 3 * torch.randn(20, 200, generator=torch.Generator().manual_seed(1))
    logits = (logits.round() if rounded else logits).masked_fill(torch.rand(200) < 0.1, -torch.inf)
    expected = logits
    for name, warper in WARPERS.items():
        if name in settings and (name, settings[name]) != ("temperature", 1.0):
            expected = warper(settings[name])(None, expected)
    assert torch.equal(warped_logits(logits, Sampling(**settings)), expected)


def test_a_place_in_the_output_draws_alike_wherever_it_stands_in_the_batch():
    logits = torch.randn(9, 30, generator=torch.Generator().manual_seed(0))
    sampler = Sampler(Sampling(temperature=1.0), all_of(logits[0]), 50, OPS)
    alone = [int(sampler.choose(row[None], 0, torch.tensor([place]))) for place, row in
             enumerate(logits)]  # fmt: skip
    order = torch.tensor([4, 4, 0, 8, 2, 6])
    assert sampler.choose(logits[order], 0, order).tolist() == [alone[i] for i in order]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_that_are_not_allowed_have_no_chance(temperature):
    logits = torch.zeros(500, 30)
    logits[:, 20:] = 9.0
    allowed = torch.zeros(30, dtype=torch.bool).index_fill(0, torch.tensor([5, 9, 17]), True)
    sampler = Sampler(Sampling(temperature=temperature), allowed, 500, OPS)
    tokens = sampler.choose(logits, 0, torch.arange(500))
    assert set(tokens.tolist()) == ({5, 9, 17} if temperature else {5})
    assert (logits[:, 20:] == 9.0).all()  # what was passed is as it was


WITH_GAPS = torch.tensor([-torch.inf, 0.0, -torch.inf, -torch.inf, 1.0, -torch.inf])


def test_impossible_tokens_are_never_drawn():
    sampler = Sampler(Sampling(temperature=1.0), all_of(WITH_GAPS), 20_000, OPS)
    tokens = sampler.choose(WITH_GAPS.expand(20_000, -1), 0, torch.arange(20_000))
    assert set(tokens.tolist()) == {1, 4}


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (1.0 - 2**-53, 4)])
def test_impossible_tokens_are_not_drawn_at_the_borders_of_the_unit_interval(number, token):
    """The smallest and the largest number that torch.rand can give in float64."""
    sampler = Sampler(Sampling(temperature=1.0), all_of(WITH_GAPS), 1, OPS)
    sampler._uniform[0] = number
    assert sampler.choose(WITH_GAPS[None], 0, torch.tensor([0])).tolist() == [token]


def test_temperature_zero_takes_the_most_probable_token():
    logits = torch.randn(40, 100, generator=torch.Generator().manual_seed(0))
    sampler = Sampler(Sampling(temperature=0.0), all_of(logits[0]), 40, OPS)
    assert torch.equal(sampler.choose(logits, 0, torch.arange(40)), logits.argmax(-1))


@pytest.mark.parametrize("temperature", [0.01, 0.02])
def test_a_temperature_near_zero_takes_the_most_probable_token_too(temperature):
    logits = 100 * torch.randn(40, 100, generator=torch.Generator().manual_seed(0))
    logits[:, 50:] = -torch.inf
    sampler = Sampler(Sampling(temperature=temperature), all_of(logits[0]), 40, OPS)
    assert torch.equal(sampler.choose(logits, 0, torch.arange(40)), logits.argmax(-1))


def test_the_test_of_distributions_can_fail():
    counts = torch.tensor([500, 300, 150, 50])
    assert p_value(counts, torch.tensor([0.5, 0.3, 0.15, 0.05])) == pytest.approx(1.0)
    assert p_value(counts, torch.tensor([0.4, 0.4, 0.15, 0.05])) < 1e-9
    assert p_value(counts, torch.tensor([0.55, 0.3, 0.15, 0.0])) == 0.0
    # The 5 % critical value for three degrees of freedom is 7.815.
    assert p_value(
        torch.tensor([250, 250, 250, 250]) + torch.tensor([31, -31, 3, -3]), torch.full((4,), 0.25)
    ) == pytest.approx(0.05, abs=0.005)
