"""The prompt: read once by the target for all methods, or by target and drafter together."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.decoding.target import Target


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


def read_together(target: Target, drafter: Drafter, prompt: Tensor) -> None:
    """Have target and drafter read a prompt int64 [L], as decoding does before the first tree."""
    if drafter.features is not None:
        target.keep_features(drafter.features)
    for progress, _ in target.prefill(prompt):
        if drafter.features is not None:
            drafter.follow(prompt, progress.done, target)
    for _ in drafter.prefill(prompt, target):
        pass
