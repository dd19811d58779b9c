import dataclasses

import pytest
import torch

from specx.bench import level
from specx.bench.retrieval_cost import Place
from specx.bench.shapes import DRAFTS

CPU = Place(torch.device("cpu"), torch.float32)


@pytest.fixture
def model():
    shape = dataclasses.replace(
        DRAFTS["68m"], hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=16,
        intermediate_size=64, vocab_size=200,
    )  # fmt: skip
    return level.random_model(shape, CPU)


def test_a_level_is_what_a_deeper_tree_takes_longer(model, monkeypatch):
    taken = {3: 5.0, 10: 12.0}
    monkeypatch.setattr(level, "_growth", lambda _, depth: depth)
    monkeypatch.setattr(level, "median_ms", lambda depth, _: taken[depth])
    assert level.level_ms(model) == 1.0


def test_trees_have_the_depth_and_the_nodes_that_are_measured(model):
    for depth in level.DEPTHS:
        tree = level._growth(model, depth)()
        assert tree.nodes == level.NODES
        assert int(tree.depths.max()) <= tree.levels == depth


def test_a_model_is_as_one_that_was_loaded():
    """Weights as asked for, rotary frequencies in float32: others are not for the fused kernel."""
    place = Place(torch.device("cpu"), torch.bfloat16)
    shape = dataclasses.replace(DRAFTS["68m"], num_layers=1, intermediate_size=64, vocab_size=200)
    model = level.random_model(shape, place).model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
