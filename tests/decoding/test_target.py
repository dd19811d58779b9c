"""The target on its own: logits and attention against transformers' own forward."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from specx.decoding.forward import PREFILL_CHUNK, prefill_chunk
from specx.decoding.target import Target
from specx.models.decoder import Decoder
from specx.models.families import read_architecture
from specx.ops.byte_rows import widened
from specx.ops.chunks import Grid
from specx.ops.torch.backend import TorchOps
from specx.ops.trees import TokenTree, root_only
from specx.records import PrefillProgress
from tests.decoding.pairs import loaded, make_prompt
from tests.tiny import make_model

FAMILIES = ["llama", "qwen3", "mistral", "smollm3"]
PARENTS = [0, 0, 0, 1, 1, 3, 2, 0]
DEPTHS = [0, 1, 1, 2, 2, 3, 2, 1]
TOKENS = [17, 30, 31, 32, 33, 34, 35, 0]


def make_tree(root: int = TOKENS[0]) -> TokenTree:
    return TokenTree(
        torch.tensor([root, *TOKENS[1:]]),
        torch.tensor(PARENTS),
        torch.tensor(DEPTHS),
        torch.tensor([True] * 7 + [False]),
        levels=4,
    )


def path_to(row: int) -> list[int]:
    """Rows from the root to ``row``."""
    return [0] if row == 0 else [*path_to(PARENTS[row]), row]


def read(target: Target, prompt: list[int]) -> torch.Tensor:
    *_, (progress, logits) = target.prefill(torch.tensor(prompt))
    assert progress == PrefillProgress("target", len(prompt), len(prompt))
    return logits


def logits_of(model, text: list[int]) -> torch.Tensor:
    """[T, V] of transformers' own forward over a whole text."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([text]), use_cache=False).logits[0]


def attention_of(model, text: list[int], layer: int) -> torch.Tensor:
    """[T]: what the last token attends to, mean over heads, by the eager attention."""
    with torch.no_grad():
        output = model(input_ids=torch.tensor([text]), output_attentions=True, use_cache=False)
    return output.attentions[layer][0, :, -1].mean(0)


def close(actual, expected, tolerance=2e-4):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [1, 8, 9, 30])
def test_logits_after_the_prompt(family, length, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 8)
    model = loaded(family)
    target, prompt = Target(model, 64, retrieval_layer=None), make_prompt(length)
    close(read(target, prompt), logits_of(make_model(family), prompt)[-1:])
    assert target.cache.committed == length


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_of_a_tree_is_verified_as_the_end_of_its_own_path(family):
    model, plain = loaded(family), make_model(family)
    target, prompt = Target(model, 64, retrieval_layer=None), make_prompt(20)
    read(target, prompt)
    scores = target.verify(make_tree())
    for row in range(len(TOKENS)):
        text = [*prompt, *(TOKENS[i] for i in path_to(row))]
        close(scores[row], logits_of(plain, text)[-1])


@pytest.mark.parametrize("settings", [{}, {"head_dim": 24}], ids=["machine code", "torch"])
def test_keys_and_values_in_float16_are_rounded_and_nothing_else(settings):
    model = loaded("qwen3", **settings)
    target = Target(replace(model, cache_dtype=torch.float16), 64, retrieval_layer=1)
    whole, prompt = Target(model, 64, retrieval_layer=1), make_prompt(20)
    for each in (target, whole):
        read(each, prompt)
    assert 2 * target.cache.storage.nbytes == whole.cache.storage.nbytes
    first, exact = (each.cache.storage[0, :, :, :20] for each in (target, whole))
    assert torch.equal(first, exact.half())
    scores, exact = target.verify(make_tree()), whole.verify(make_tree())
    close(scores, exact, 5e-3)
    assert not torch.equal(scores, exact)
    attention = [each.chunk_scores(Grid(1), each.cache.length) for each in (target, whole)]
    close(*attention, 1e-3)


@pytest.mark.parametrize("settings", [{}, {"head_dim": 24}], ids=["machine code", "torch"])
def test_keys_and_values_in_8_bits_are_rounded_and_nothing_else(settings):
    """Prompt, tree, retrieval and sources compute with the numbers that are stored."""
    model = loaded("qwen3", **settings)
    dim = model.attention_of(0).head_dim
    rounded = Target(replace(model, cache_dtype=torch.int8), 64, retrieval_layer=1)
    whole, prompt = Target(model, 64, retrieval_layer=1), make_prompt(20)
    for each in (rounded, whole):
        read(each, prompt)
    # The whole ones get the rounded numbers, so that nothing else differs.
    whole.cache.storage.copy_(widened(rounded.cache.storage, dim, torch.float32))
    close(rounded.verify(make_tree()), whole.verify(make_tree()), 5e-2)  # its own are rounded, too
    stored = widened(rounded.cache.storage[0, :, :, 20:27], dim, torch.float32)
    close(stored, whole.cache.storage[0, :, :, 20:27], 2e-2)
    assert not torch.equal(stored, whole.cache.storage[0, :, :, 20:27])
    attention = [each.chunk_scores(Grid(1), each.cache.length) for each in (rounded, whole)]
    close(*attention, 1e-2)


@pytest.mark.parametrize("leaf", range(7))
def test_after_keep_the_cache_holds_the_accepted_path(leaf):
    """The next tree is scored as if the text had been read in one piece."""
    model, plain = loaded("qwen3"), make_model("qwen3")
    target, prompt = Target(model, 80, retrieval_layer=None), make_prompt(20)
    read(target, prompt)
    rows = path_to(leaf)
    target.verify(make_tree())
    path = TorchOps().accept(make_tree(), choices_along(rows))
    count = len(rows)
    assert path.rows[:count].tolist() == rows
    target.keep(path)
    assert target.cache.committed == 20 + count
    text = [*prompt, *(TOKENS[row] for row in rows)]
    scores = target.verify(make_tree(root=40))
    for row in (0, 5, 6):
        end = [40, *(TOKENS[i] for i in path_to(row)[1:])]
        close(scores[row], logits_of(plain, [*text, *end])[-1])


def choices_along(rows: list[int]) -> torch.Tensor:
    """The target's choices that lead along ``rows`` and no further."""
    choices = torch.full((len(TOKENS),), 99)
    for parent, row in pairwise(rows):
        choices[parent] = TOKENS[row]
    return choices


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_attention_is_that_of_the_last_token(family, layer, monkeypatch):
    """After a prompt in chunks, after an accepted path, and after a root alone."""
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 8)
    overrides = {"num_hidden_layers": 3}
    model, eager = loaded(family, **overrides), make_model(family, **overrides)
    eager.set_attn_implementation("eager")
    target, text = Target(model, 80, retrieval_layer=layer), make_prompt(21)
    read(target, text)
    check_scores(target, attention_of(eager, text, layer))
    for rows in ([0, 1, 3, 5], [0], [0, 2]):
        target.verify(make_tree())
        target.keep(TorchOps().accept(make_tree(), choices_along(rows)))
        text = [*text, *(TOKENS[row] for row in rows)]
        check_scores(target, attention_of(eager, text, layer))


def check_scores(target: Target, row: torch.Tensor) -> None:
    """Chunks of one token are the row itself, and nothing is behind the text."""
    scores = target.chunk_scores(Grid(1), target.cache.length)
    close(scores[: len(row)], row, 1e-5)
    assert (scores[len(row) :] == -torch.inf).all()


QWEN = {"model_type": "qwen2", "num_hidden_layers": 2, "vocab_size": 1000, "rms_norm_eps": 1e-6}
SMALL = QWEN | {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14}
MIDDLE = QWEN | {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12}
LARGE = QWEN | {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28}
WINDOWED = SMALL | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
GEMMA = {  # 3 27B
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
    "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 128, "vocab_size": 1000, "sliding_window": 1024, "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 168, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "chunks", "capability"),
    [
        (SMALL, 4, (9, 0)),
        (MIDDLE, 3, (9, 0)),
        (MIDDLE, 3, (8, 6)),
        (MIDDLE, 1, (10, 0)),
        (LARGE, 1, (9, 0)),
        (WINDOWED, 1, (9, 0)),
        (SMALL | {"num_attention_heads": 7, "num_key_value_heads": 7}, 4, (9, 0)),
        (SMALL | {"head_dim": 256}, 1, (9, 0)),
        (GEMMA, 0.5, (9, 0)),
    ],
)
def test_small_models_read_longer_chunks_on_a_gpu(config, chunks, capability, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    spec = read_architecture({"num_key_value_heads": 2} | config, "The model").spec
    assert prefill_chunk(torch.device("cuda"), spec) == chunks * PREFILL_CHUNK["cuda"]
    assert prefill_chunk(torch.device("cpu"), spec) == PREFILL_CHUNK["cpu"]


@pytest.mark.parametrize(("softcap", "sinks"), [(None, True), (0.5, False), (0.5, True)])
def test_the_last_token_of_a_prompt_is_normalized_as_a_verified_one(softcap, sinks):
    """Retrieval divides each head's attention by it: with caps and sinks as without."""
    plain = loaded("llama")
    weights, layers = plain.model.weights, []
    for layer in plain.model.weights.layers:
        attention = replace(layer.spec.attention, softcap=softcap, sinks=sinks)
        own = torch.linspace(-1, 3, attention.query_heads) if sinks else None
        spec = replace(layer.spec, attention=attention)
        layers.append(replace(layer, spec=spec, sinks=own))
    spec = replace(plain.decoder_spec, layers=tuple(layer.spec for layer in layers))
    decoder = Decoder(replace(weights, spec=spec, layers=layers), plain.ops)
    model, prompt = replace(plain, model=decoder, decoder_spec=spec), make_prompt(30)
    target, verified = (Target(model, 80, retrieval_layer=1) for _ in range(2))
    read(target, prompt)
    read(verified, prompt[:-1])
    verified.verify(root_only(torch.tensor(prompt[-1:])))
    close(target.retrieval.lse[:, 0], verified.retrieval.lse[:, 0], 1e-5)
