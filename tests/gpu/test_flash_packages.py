"""Packages of flash attention that are installed here, against float64, and on whole documents."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from specx.bench.generated import generate_report
from specx.decoding.methods import Pair
from specx.ops.contract import Ops, built_in_ops, ops_for
from specx.ops.torch.flash_packages import PACKAGES, is_installed
from specx.profile import Profile
from specx.prompts.digest import Digest
from specx.runs.lossless import logit_gap
from specx.runs.pair import load_pair
from tests.decoding.pairs import Run, run
from tests.gpu.test_cuda import TOLERANCE, mini
from tests.ops import reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
GAP = 0.5  # between logits of two tokens that bfloat16 may confuse
FORMATS = [
    (name, dtype)
    for name in PACKAGES
    for dtype in (torch.bfloat16, torch.float16)
    if (name, dtype) != ("fa3-fwd", torch.float16)  # its wheel is built without
]
EACH = pytest.mark.parametrize(
    ("name", "dtype"), FORMATS, ids=lambda value: str(value).removeprefix("torch.")
)


def ops_of(name: str, dtype: torch.dtype, dim: int) -> Ops:
    """Return the operations with a package; one that is installed and cannot be used is wrong."""
    if not is_installed(name):
        pytest.skip(f"needs {name}")
    return ops_for(CUDA, name, dtype, dim)


def qkv(dtype: torch.dtype, rows: int, keys: int, written: int, dim: int) -> list[torch.Tensor]:
    """Draw q [8, T, D], k and v [2, S, D]; what is behind the written rows is not a number."""
    generator = torch.Generator(CUDA).manual_seed(rows * keys)
    drawn = [
        torch.randn(heads, count, dim, generator=generator, device=CUDA).to(dtype)
        for heads, count in ((8, rows), (2, keys), (2, keys))
    ]
    for storage in drawn[1:]:
        storage[:, written:] = torch.nan
    return drawn


@pytest.mark.parametrize("window", [None, 65, 512])
@pytest.mark.parametrize(("past", "rows"), [(0, 1500), (700, 1024), (1023, 129), (1500, 1)])
@pytest.mark.parametrize("dim", [64, 128])
@EACH
def test_a_prefill_is_exact(
    name: str, dtype: torch.dtype, dim: int, past: int, rows: int, window: int | None
) -> None:
    ops = ops_of(name, dtype, dim)
    q, k, v = qkv(dtype, rows, past + rows + 77, past + rows, dim)
    out = ops.prefill_attention(q, k, v, past, window, dim**-0.5)
    written = (part[:, : past + rows] for part in (k, v))
    seen = reference.causal_mask(rows, past, window)
    expected, _ = reference.attention(q, *written, seen, dim**-0.5)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)


def in_bfloat16() -> Profile:
    return mini().changed(target={"dtype": "bfloat16"})


@pytest.fixture(scope="module")
def built_in() -> Iterator[Pair]:
    pair = load_pair(in_bfloat16(), "specextend", CUDA)
    own, draft = built_in_ops(CUDA), pair.draft
    assert draft is not None
    yield replace(pair, target=replace(pair.target, ops=own), draft=replace(draft, ops=own))
    torch.cuda.empty_cache()


def with_package(pair: Pair, name: str) -> Pair:
    models = [
        replace(model, ops=ops_of(name, model.dtype, model.attention_of(0).head_dim))
        for model in (pair.target, pair.draft)
        if model is not None
    ]
    return replace(pair, target=models[0], draft=models[1])


def same_or_tied(pair: Pair, prompt: tuple[int, ...], plain: Run, ours: Run) -> None:
    both = zip(plain.tokens, ours.tokens, strict=False)
    at = next((i for i, (a, b) in enumerate(both) if a != b), None)
    if at is not None:
        gap = logit_gap(pair, (*prompt, *plain.tokens[:at]), plain.tokens[at], ours.tokens[at])
        print(f"differs at token {at}, logit gap {gap:.2e}")
        assert abs(gap) < GAP


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PACKAGES)
def test_documents_are_written_as_without(name: str, seed: int, built_in: Pair) -> None:
    """Six documents of 1,500 to 17,000 tokens, plainly and speculatively, in bfloat16."""
    pair = with_package(built_in, name)
    report = generate_report(6_000 + 12_000 * seed, seed=seed)
    prompt = (
        Digest(pair.target.tokenizer, sentences=8, whole=True).prompts(report, 24_000)[0].token_ids
    )
    profile = in_bfloat16()
    expected = run(built_in, profile, "plain", prompt)
    plain, ours = (run(pair, profile, method, prompt) for method in ("plain", "specextend"))
    assert len(expected.tokens) > 20
    same_or_tied(built_in, prompt, expected, plain)
    same_or_tied(pair, prompt, plain, ours)
