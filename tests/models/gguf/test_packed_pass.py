"""Passes of a model whose weights stay in blocks, beside the same weights unpacked."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specx.models.decoder import Decoder
from specx.ops.blocks import by_name
from specx.ops.contract import built_in_ops, kept_formats
from specx.ops.layers import DecoderWeights, LinearMap
from specx.ops.native.code import vector_unit
from specx.ops.packed_weight import PackedWeight
from tests.models.families import SIZES, Cell, Text, make_pair
from tests.ops.test_blocks import random_blocks
from tests.threads import threads as using

CPU = torch.device("cpu")
WIDE = {"hidden_size": 256, "intermediate_size": 768, "vocab_size": 131}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
# As llama.cpp mixes them: formats of queries, keys and values; out; gate and up; down; embedding.
MIXES = {
    "Q4_0": ("Q4_0",) * 5,
    "Q4_1": (*("Q4_1",) * 4, "Q8_0"),
    "Q4_K_M": ("Q4_K Q4_K Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K"),
    "Q5_K_M": ("Q5_K Q5_K Q6_K", "Q5_K", "Q5_K", "Q6_K", "Q6_K"),
    "odd": ("Q5_0 Q8_0 Q5_1", "Q5_1", "Q8_0 Q4_0", "Q4_1", "Q5_0"),
}


def in_blocks(linear_map: LinearMap, formats: str, seed: int) -> LinearMap:
    """Return a random matrix of the same shape, its rows in one or several formats."""
    rows, columns = linear_map.weight.shape
    names, parts = formats.split(), []
    for i, name in enumerate(names):
        form = by_name(name)
        count = rows * (i + 1) // len(names) - rows * i // len(names)
        spread = {"Q4_K": 500, "Q5_K": 1000, "Q6_K": 1500, "Q8_0": 70}.get(name, 8)
        blocks = random_blocks(
            form, count * columns // form.values, seed=seed + i, size=1 / spread / columns**0.5
        )
        parts.append((torch.from_numpy(blocks).reshape(count, -1), form))
    return replace(linear_map, weight=PackedWeight(tuple(parts)))


def packed(weights: DecoderWeights, mix: tuple[str, ...]) -> DecoderWeights:
    layers = []
    for i, layer in enumerate(weights.layers):
        names = ("qkv", "out", "gate_up", "down")
        maps = {
            name: in_blocks(getattr(layer, name), form, seed=10 * i + j)
            for j, (name, form) in enumerate(zip(names, mix, strict=False))
        }
        layers.append(replace(layer, **maps))
    head = in_blocks(weights.head, mix[4], seed=99)
    return replace(weights, layers=layers, head=head, embedding=head.weight)


def unpacked(weights: DecoderWeights) -> DecoderWeights:
    def floats(linear_map: LinearMap) -> LinearMap:
        assert isinstance(linear_map.weight, PackedWeight)
        return replace(linear_map, weight=linear_map.weight.unpack())

    names = ("qkv", "out", "gate_up", "down")
    layers = [
        replace(layer, **{name: floats(getattr(layer, name)) for name in names})
        for layer in weights.layers
    ]
    head = floats(weights.head)
    return replace(weights, layers=layers, head=head, embedding=head.weight)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "mix",
    [each if each == "Q4_1" else pytest.param(each, marks=pytest.mark.slow) for each in MIXES],
)
def test_a_pass_is_that_of_the_unpacked_model(mix: str, threads: int, tmp_path: Path) -> None:
    if not kept_formats(CPU):
        pytest.skip("machine code runs not here")
    cell = Cell("llama", "in blocks", {**SIZES, **WIDE, **HEADS, "tie_word_embeddings": True})
    drawn = make_pair(cell, tmp_path).decoder().weights
    own, ops = packed(drawn, MIXES[mix]), built_in_ops(CPU)
    with using(threads):
        decoders = Decoder(own, ops), Decoder(unpacked(own), ops)
        assert decoders[0].has_fused_forward
        texts = [Text(decoder) for decoder in decoders]
        ids = torch.randint(3, 131, (20,), generator=torch.Generator().manual_seed(2))
        ours, theirs = (text.read(ids) for text in texts)
        size = float(theirs.abs().max())
        assert float((ours - theirs).abs().max()) < 1e-5 * size
        for parents in ([0], [0, 0, 1], [0, 0, 0, 1, 1, 2, 3, 6]):
            rows = ids[: len(parents)]
            ours, theirs = (text.verify(rows, parents) for text in texts)
            assert float((ours - theirs).abs().max()) < 1e-5 * size
            alone = texts[0].verify(rows[:1], [0])
            assert torch.equal(alone[0], ours[0])  # whatever rows are beside it


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_in_int8_is_the_same_beside_others(threads: int, tmp_path: Path) -> None:
    """A tree of any size has for each text the logits, bit for bit, that a token alone has."""
    if not kept_formats(CPU) or vector_unit().lanes < 8:
        pytest.skip("products of int8 run not here")
    cell = Cell("llama", "in blocks", {**SIZES, **WIDE, **HEADS, "tie_word_embeddings": True})
    own = rounding(packed(make_pair(cell, tmp_path).decoder().weights, MIXES["Q4_K_M"]))
    floats = unpacked(own)
    with using(threads):
        texts = [Text(Decoder(each, built_in_ops(CPU))) for each in (own, floats)]
        ids = torch.randint(3, 131, (64,), generator=torch.Generator().manual_seed(2))
        for text in texts:
            text.read(ids[:20])
        alone, exact = (text.verify(ids[:1], [0]) for text in texts)
        size = float(exact.abs().max())
        assert 1e-5 * size < float((alone - exact).abs().max()) < 0.1 * size
        for count in (2, 5, 8, 62):
            together = texts[0].verify(ids[:count], [0, *range(count - 1)])
            assert torch.equal(alone[0], together[0])


def rounding(weights: DecoderWeights) -> DecoderWeights:
    """Return the same weights, whose products are of int8."""

    def of(linear_map: LinearMap) -> LinearMap:
        assert isinstance(linear_map.weight, PackedWeight)
        return replace(linear_map, weight=replace(linear_map.weight, rounds=True))

    names = ("qkv", "out", "gate_up", "down")
    layers = [
        replace(layer, **{name: of(getattr(layer, name)) for name in names})
        for layer in weights.layers
    ]
    head = of(weights.head)
    return replace(weights, layers=layers, head=head, embedding=head.weight)
