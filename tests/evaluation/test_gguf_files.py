"""Published GGUF files, in the folder that SPECX_GGUF names: logits and text of transformers.

Qwen2.5-Coder 1.5B and 0.5B and Gemma 3 270M, whose layers have windows of 512 tokens, all in
Q4_K_M. transformers computes the same weights, unpacked to float32.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.bench.cases import generated_documents
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from tests.models.families import Text
from tests.models.gguf.as_transformers import load_own_class

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
FILES = (
    "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
)
LENGTHS = (1024, 7168)
TOKENS = 64
CHUNK = 512
ROUNDING = 1e-3  # of the logits' deviation: sums of the same products, in another order


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Return a file as specx loads it, its matrices in their blocks, and transformers' model."""
    folder = os.environ.get("SPECX_GGUF")
    file = Path(folder or "") / request.param
    if not folder or not file.is_file():
        pytest.skip(f"SPECX_GGUF does not name a folder with {request.param}")
    ours = load_model(ModelSpec(str(file), activations="float32"), "cpu", "target")
    theirs = load_own_class(file, torch.float32)
    return ours, theirs


def prompt_of(tokenizer: Any, length: int) -> torch.Tensor:
    (document,) = generated_documents(1, 2 * length, seed=4)
    text = "\n\n".join(paragraph.text for paragraph in document.paragraphs)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    assert len(ids) >= length
    return ids[:length]


@pytest.mark.parametrize("length", LENGTHS)
@torch.inference_mode()
def test_logits_and_greedy_text_are_those_of_transformers(
    both: tuple[Any, Any], length: int
) -> None:
    ours, theirs = both
    prompt = prompt_of(ours.tokenizer, length)
    text = Text(ours.model, capacity=length + TOKENS)
    for part in prompt.split(CHUNK):
        found = text.read(part, 1)[0]
    output = theirs(prompt[None], use_cache=True, logits_to_keep=1)
    error = float((found - output.logits[0, -1]).abs().max() / output.logits.std())
    print(f"{ours.source}, {length} tokens: error of {error:.1e} of the logits' deviation")
    assert error < ROUNDING
    written, cache, logits = [], output.past_key_values, output.logits[0, -1]
    for _ in range(TOKENS):
        token = found.argmax()
        assert int(token) == int(logits.argmax()), written
        written.append(int(token))
        found = text.verify(token[None], [0])[0]
        text.keep([0])
        logits = theirs(token[None, None], past_key_values=cache).logits[0, -1]
