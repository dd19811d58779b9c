"""Speculative output against plain decoding on all 36 documents, token for token."""

import pytest
import torch

from specx.decoding.decode import decode
from specx.decoding.methods import Pair
from specx.documents.document import Document
from specx.profile import Profile, load_profile, resolve
from specx.prompts.digest import Digest
from specx.records import Method, Step
from specx.runs.lossless import logit_gap
from specx.runs.pair import load_pair

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

HEAD_METHODS: tuple[Method, ...] = ("specextend", "specextend+lookup")
EVERY_SETTING = {
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.02,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
    "no_repeat_ngram": 6,
    "seed": 5,
}
TIE = 1e-4  # logits that are nearer than this may fall either way in float32


def written(pair: Pair, profile: Profile, method: Method, prompt: tuple[int, ...]) -> list[int]:
    events = decode(pair, resolve(profile, method, pair.facts), prompt)
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


def parting(
    pair: Pair, prompt: tuple[int, ...], plain: list[int], ours: list[int]
) -> tuple[int, float]:
    """The place where two outputs part, and how far apart the logits are there."""
    at = next(i for i, (a, b) in enumerate(zip(plain, ours, strict=False)) if a != b)
    return at, logit_gap(pair, (*prompt, *plain[:at]), plain[at], ours[at])


@pytest.mark.usefixtures("shared_prefill")
@pytest.mark.parametrize("size", ["4K", "8K", "16K"])
def test_every_method_writes_what_plain_decoding_writes(
    size: str, govreport: dict[str, list[Document]], pair: Pair, mini: Profile
) -> None:
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    differences: list[str] = []
    ties: list[str] = []
    sentences, verbatim = 0, 0
    for document in govreport[size]:
        (prompt,) = digest.prompts(document, pair.target.window - mini.output_limit)
        methods: tuple[Method, ...] = ("specextend", "plain", "tree", "streaming")
        outputs = {name: written(pair, mini, name, prompt.token_ids) for name in methods}
        plain = outputs.pop("plain")
        reader = digest.reader(prompt)
        reader.feed([token for token in plain if token not in pair.target.eos_token_ids])
        output = reader.finish()[1]
        sentences += len(output.quotes) + output.dropped
        verbatim += sum(quote.verbatim for quote in output.quotes)
        for method, ours in outputs.items():
            if ours != plain:
                at, gap = parting(pair, prompt.token_ids, plain, ours)
                found = f"{document.name} {method}: token {at}, logit gap {gap:.2e}"
                (ties if abs(gap) < TIE else differences).append(found)
    print(f"\n{size}: {3 * len(govreport[size])} outputs, ties: {ties or 'none'}; ", end="")
    print(f"{verbatim} of {sentences} sentences verbatim")
    assert not differences


@pytest.mark.usefixtures("shared_prefill")
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_every_setting_is_exact_in_every_method(
    temperature: float, govreport: dict[str, list[Document]], pair: Pair, mini: Profile
) -> None:
    profile = mini.changed(generation={**EVERY_SETTING, "temperature": temperature})
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    ties: list[str] = []
    for document in govreport["4K"]:
        (prompt,) = digest.prompts(document, pair.target.window - mini.output_limit)
        plain = written(pair, profile, "plain", prompt.token_ids)
        methods: tuple[Method, ...] = ("specextend", "tree", "lookup")
        for method in methods:
            ours = written(pair, profile, method, prompt.token_ids)
            if ours != plain:
                at, gap = parting(pair, prompt.token_ids, plain, ours)
                ties.append(f"{document.name} {method}: token {at}, logit gap {gap:.2e}")
    assert not ties


@pytest.mark.parametrize("size", ["4K", "8K", "16K"])
def test_a_head_writes_what_plain_decoding_writes(
    size: str, govreport: dict[str, list[Document]]
) -> None:
    profile = load_profile("mini-eagle3").changed(fallback={"below": None})
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    ties = 0
    for document in govreport[size]:
        (prompt,) = digest.prompts(document, pair.target.window - profile.output_limit)
        plain = written(pair, profile, "plain", prompt.token_ids)
        for method in HEAD_METHODS:
            ours = written(pair, profile, method, prompt.token_ids)
            if ours != plain:
                at, gap = parting(pair, prompt.token_ids, plain, ours)
                assert abs(gap) < TIE, f"{document.name} {method}: token {at}, logit gap {gap:.2e}"
                ties += 1
    print(f"\n{size}: {len(HEAD_METHODS) * len(govreport[size])} outputs, {ties} ties")
