"""A prompt that the target reads once, for all methods that go on from there."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specx.engine.methods import Pair
from specx.engine.target import Target


@torch.inference_mode()
def read_beginning(pair: Pair, prompt: Sequence[int]) -> Tensor:
    """Return the target's keys and values [layers, 2, Hkv, L - 1, D] of all of a prompt of L
    tokens but the last."""
    target = Target(pair.target, len(prompt), None)
    ids = torch.tensor(prompt[:-1], dtype=torch.int64, device=pair.target.device)
    for _ in target.prefill(ids):
        pass
    return target.cache.storage[:, :, :, : len(ids)]


def restore(target: Target, rows: Tensor) -> None:
    """Have a new target begin behind keys and values ``rows`` [layers, 2, Hkv, L, D].

    At least one token of the prompt must be left to read.
    """
    count = rows.shape[3]
    target.cache.storage[:, :, :, :count] = rows
    target.cache.commit(count)
