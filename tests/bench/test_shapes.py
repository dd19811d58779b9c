"""Shapes have the sizes that the public models state."""

import pytest

from specx.bench.shapes import DRAFTS, TARGETS

PUBLIC = {  # parameters, counted on the models of that name
    "llama-3.1-8b": 8_030_261_248,
    "vicuna-7b": 6_738_415_616,
    "llama-3.1-70b": 70_553_706_496,
    "160m": 162_417_408,
    "1b": 1_235_814_400,
}
LAYER_OF_68M = 9_438_720


@pytest.mark.parametrize("name", PUBLIC)
def test_as_many_parameters_as_the_public_model(name: str) -> None:
    assert {**TARGETS, **DRAFTS}[name].parameters() == PUBLIC[name]


def test_the_smallest_draft_has_a_layer_more_than_its_model() -> None:
    assert DRAFTS["68m"].parameters() == 68_030_208 + LAYER_OF_68M


def test_another_vocabulary() -> None:
    shape = DRAFTS["68m"]
    more = shape.parameters(128_256) - shape.parameters()
    assert more == 2 * (128_256 - 32_000) * 768
