"""Formats of GGUF, unpacked bit for bit as the package ``gguf`` does it."""

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from specx.ops.blocks import FORMATS, UNREAD, BlockFormat

FORMS = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)


def random_blocks(form: BlockFormat, count: int, seed: int = 0, size: float = 0.1) -> np.ndarray:
    """Return uint8 [count, bytes]: every bit random, but scales are of some size."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, form.bytes), dtype=np.uint8)
    halves = {"scale", "minimum"} & form.fields.keys() if form.name != "MXFP4" else set()
    for field in halves:
        at = form.fields[field]
        blocks[:, at : at + 2] = (
            random.normal(0, size, (count, 1)).astype(np.float16).view(np.uint8)
        )
    if form.name == "MXFP4":
        blocks[:4, 0] = [0, 1, 2, 254][:count]
        blocks[4:, 0] %= 255  # 255 is no number
    if form.values == 1:
        blocks = random.normal(0, 1, (count, 1)).astype(np.float32).view(np.uint8)
        blocks = blocks[:, 4 - form.bytes :]  # the upper half of a float32 is a bfloat16
        if form.name == "F16":
            blocks = random.normal(0, 1, (count, 1)).astype(np.float16).view(np.uint8)
    return np.ascontiguousarray(blocks)


@FORMS
def test_every_bit_is_that_of_gguf(form: BlockFormat) -> None:
    blocks = random_blocks(form, 300)
    theirs = dequantize(blocks, gguf.GGMLQuantizationType(form.number))
    ours = form.unpack(torch.from_numpy(blocks))
    assert ours.dtype == torch.float32
    assert np.array_equal(ours.numpy().view(np.uint32), theirs.reshape(ours.shape).view(np.uint32))


@FORMS
def test_rows_and_experts_keep_their_shape(form: BlockFormat) -> None:
    blocks = random_blocks(form, 2 * 3 * 5, seed=1)
    packed = torch.from_numpy(blocks).reshape(2, 3, 5 * form.bytes)
    whole = form.unpack(packed)
    assert whole.shape == (2, 3, 5 * form.values)
    assert torch.equal(whole[1, 2], form.unpack(packed[1, 2]))
    assert form.row_bytes(whole.shape[-1]) == packed.shape[-1]


def test_the_table_has_the_sizes_and_numbers_of_gguf() -> None:
    for kind in gguf.GGMLQuantizationType:
        if kind.value in UNREAD:
            assert UNREAD[kind.value] == kind.name
            continue
        form = FORMATS[kind.value]
        assert (form.name, (form.values, form.bytes)) == (kind.name, gguf.GGML_QUANT_SIZES[kind])
