"""A scaled pair of real size: built in seconds, and it writes what the embedded pair writes."""

import time

import pytest
import torch

from specx.bench.generated import generate_report
from specx.bench.scaled import scaled_pair, scaled_profile
from specx.bench.shapes import DRAFTS, TARGETS
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.profile import Profile, load_profile
from specx.prompts.digest import Digest
from specx.records import PrefillProgress, Tally
from specx.runs.lossless import logit_gap
from specx.runs.pair import load_pair
from tests.decoding.pairs import Run, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = torch.device("cuda")
TARGET = "llama-3.1-8b"
SECONDS = 30  # to build the pair
AGREED = 10  # tokens that must be the same in both formats, at least
LOGITS = 0.1  # relative difference of the logits; 0.02 was measured on a thinner target
GAP = 0.5  # between logits of two tokens that bfloat16 may confuse


def mini() -> Profile:
    profile = load_profile("mini").on("cuda")
    return profile.changed(fallback={"below": None}, generation={"max_new_tokens": 150})


@pytest.fixture(scope="module")
def scaled() -> Pair:
    started = time.perf_counter()
    pair = scaled_pair(TARGET, "68m", DEVICE, torch.bfloat16)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    print(f"built in {seconds:.1f} s")
    assert seconds < SECONDS
    return pair


@pytest.fixture(scope="module")
def small() -> Pair:
    return load_pair(mini(), "specextend", DEVICE)


@pytest.fixture(scope="module")
def prompt(small: Pair) -> tuple[int, ...]:
    kind = Digest(small.target.tokenizer, sentences=8, whole=True)
    return kind.prompts(generate_report(12_000, seed=2), 24_000)[0].token_ids


@torch.inference_mode()
def last_logits(pair: Pair, prompt: tuple[int, ...]) -> torch.Tensor:
    """float32 [V of the tokenizer]: what the target makes of the whole prompt."""
    target = Target(pair.target, len(prompt), retrieval_layer=None)
    *_, (_, logits) = target.prefill(torch.tensor(prompt, device=DEVICE))
    assert not isinstance(logits, PrefillProgress)
    return logits[0, pair.target_allowed].float()


def first_difference(ours: Run, theirs: Run) -> int:
    pairs = enumerate(zip(ours.tokens, theirs.tokens, strict=False))
    return next((i for i, (a, b) in pairs if a != b), len(ours.tokens))


def test_weights_are_those_of_the_shapes(scaled: Pair) -> None:
    assert scaled.draft is not None
    target = TARGETS[TARGET]
    draft = DRAFTS["68m"]
    sizes = target.parameters(), draft.parameters(target.vocab_size)
    for model, size in zip((scaled.target, scaled.draft), sizes, strict=True):
        # A head shares the target's embedding. A few bytes are frequencies.
        assert model.weight_bytes == pytest.approx(2 * size, rel=1e-6)


def test_logits_are_close(scaled: Pair, small: Pair, prompt: tuple[int, ...]) -> None:
    ours, theirs = last_logits(small, prompt), last_logits(scaled, prompt)
    difference = float((ours - theirs).norm() / ours.norm())
    print(f"logits after {len(prompt)} tokens differ by {difference:.1e}")
    assert difference < LOGITS
    assert ours.argmax() == theirs.argmax()


def test_output_is_that_of_the_small_pair(
    scaled: Pair, small: Pair, prompt: tuple[int, ...]
) -> None:
    ours = run(small, mini(), "plain", prompt)
    theirs = run(scaled, scaled_profile(mini(), TARGET), "plain", prompt)
    at = first_difference(ours, theirs)
    print(f"bfloat16 differs from float32 at token {at} of {len(ours.tokens)}")
    assert at >= AGREED


def test_drafts_are_accepted(scaled: Pair, prompt: tuple[int, ...]) -> None:
    profile = scaled_profile(mini(), TARGET)
    plain, ours = (run(scaled, profile, method, prompt) for method in ("plain", "specextend"))
    tally = Tally()
    for step in ours.steps:
        tally.add(step)
    print(f"tau {tally.acceptance_length:.2f}", ours.timings)
    assert tally.acceptance_length > 1.5
    at = first_difference(plain, ours)
    if at < min(len(plain.tokens), len(ours.tokens)):  # one row and 51 rows round differently
        text = (*prompt, *plain.tokens[:at])
        gap = logit_gap(scaled, text, plain.tokens[at], ours.tokens[at])
        print(f"specextend differs from plain at token {at}, logit gap {gap:.2e}")
        assert abs(gap) < GAP
