"""Rotating cached keys to other positions."""

import pytest
import torch

from specx.ops.torch.cache import rotate
from tests.models.modules import rope_frequencies
from tests.ops import reference
from tests.tiny import LINEAR, LLAMA3, YARN, make_model

ROTARY = {
    "default": {"rope_type": "default"},
    "linear": LINEAR,
    "llama3": LLAMA3,
    "yarn": YARN,
}


INV_FREQ = 10_000.0 ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)  # head dim 16


def normal(*sizes):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def rope(keys, positions, inv_freq=INV_FREQ):
    return reference.rope(keys, positions, inv_freq)


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def test_a_rotated_key_is_the_key_of_its_new_position():
    raw, old = normal(2, 3, 40, 16), torch.arange(5, 45)
    for new in (torch.arange(40), torch.arange(40).flip(0), torch.full((40,), 100_000)):
        close(rotate(rope(raw, old), new - old, INV_FREQ), rope(raw, new))


def test_only_the_difference_counts_however_far_out():
    """Angles of 100,000 positions: taken in float32 they would be off by more than 1e-3."""
    keys = normal(1, 5, 16)
    there = rotate(keys, torch.full((5,), 100_000), INV_FREQ)
    close(rotate(there, torch.full((5,), -100_000), INV_FREQ), keys)
    close(there, rope(keys, torch.full((5,), 100_000)))


def test_rotations_add():
    keys, a, b = normal(2, 6, 16), torch.tensor([0, 1, -7, 300, 9, 2]), torch.arange(6) * 11
    close(rotate(rotate(keys, a, INV_FREQ), b, INV_FREQ), rotate(keys, a + b, INV_FREQ))


def test_no_rotation_changes_nothing():
    keys = normal(2, 6, 16)
    assert torch.equal(rotate(keys, torch.zeros(6, dtype=torch.int64), INV_FREQ), keys)


def test_each_row_has_a_rotation_of_its_own():
    keys, by = normal(2, 4, 16), torch.tensor([0, 3, 0, -2])
    moved = rotate(keys, by, INV_FREQ)
    assert torch.equal(moved[:, [0, 2]], keys[:, [0, 2]])
    for row in (1, 3):
        close(moved[:, row : row + 1], rope(keys[:, row : row + 1], by[row : row + 1]))


def test_dimensions_beyond_the_rotary_ones_stay():
    keys, by, part = normal(2, 4, 16), torch.arange(1, 5), INV_FREQ[:3]
    moved = rotate(keys, by, part)
    assert torch.equal(moved[..., 6:], keys[..., 6:])
    close(moved, rope(keys, by, part))
    assert (moved[..., :6] - keys[..., :6]).abs().min() > 1e-6


@pytest.mark.parametrize("kind", ROTARY)
def test_agrees_with_the_rotary_embedding_of_a_model(kind):
    """Keys of the first layer depend on token and position alone, in every kind of RoPE.

    The model itself takes angles in float32: at 200 positions they are right to about 1e-5.
    """
    rope_parameters = {**ROTARY[kind], "rope_theta": 10_000.0}
    model = make_model("llama", num_hidden_layers=1, rope_parameters=rope_parameters).double()
    inv_freq = rope_frequencies(model)
    ids, here, there = torch.arange(30, 50), torch.arange(20), torch.arange(0, 200, 10) + 3
    close(
        rotate(first_keys(model, ids, here), there - here, inv_freq),
        first_keys(model, ids, there),
        1e-4,
    )


def first_keys(model, ids, positions):
    """float64 [1, Hkv, T, D]: what the first layer caches."""
    with torch.no_grad():
        output = model(input_ids=ids[None], position_ids=positions[None], use_cache=True)
    return output.past_key_values.layers[0].keys


def test_half_precision_keys_stay_in_their_dtype():
    keys, by = normal(2, 6, 16), torch.arange(6) * 1000
    moved = rotate(keys.bfloat16(), by, INV_FREQ.float())
    assert moved.dtype == torch.bfloat16
    torch.testing.assert_close(moved.double(), rope(keys, by), atol=0.05, rtol=0)
