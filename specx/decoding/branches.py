"""Add a chain from lookup to a draft's tree, as one more branch."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from specx.ops.trees import Level, TokenTree, doublings


def chain_tree(root: Tensor, tokens: Tensor, weights: Tensor) -> TokenTree:
    """Return a tree with one chain after ``root`` int64 [1]: tokens int64 [D], weights float32 [D].

    A weight of −inf marks padding, at the end of the chain or everywhere.
    """
    valid = weights > -torch.inf
    depths = torch.arange(1, len(tokens) + 1, device=root.device)
    own = torch.ones_like(depths) << depths  # bits of the rows behind the root
    return TokenTree(
        tokens=torch.cat([root, tokens * valid]),
        parents=pad((depths - 1) * valid, (1, 0)),
        depths=pad(torch.where(valid, depths, 1), (1, 0)),
        valid=pad(valid, (1, 0), value=True),
        levels=len(tokens),
        sets=pad(torch.where(valid, 2 * own - 1, own + 1), (1, 0), value=1),
    )


def with_branch(levels: list[Level], tokens: Tensor, weights: Tensor) -> list[Level]:
    """Add the chain ``tokens`` int64 [D] to a tree, one node per level.

    weights float32 [D]: log-probabilities of the chain's prefixes, descending, −inf for padding. If
    the draft already has a node of the chain, that node gets the larger weight, because siblings
    must have different tokens. Levels that the tree lacks are added, up to D.
    """
    depth, width = len(tokens), len(levels[0].tokens)
    levels = levels + [_padding(levels[0])] * (depth - len(levels))
    all_tokens = torch.stack([level.tokens for level in levels])  # [D, width], as the next two
    all_parents = torch.stack([level.parents for level in levels])
    all_weights = torch.stack([level.weights for level in levels])
    shared = _on_chain(all_tokens, all_parents, all_weights, tokens)
    is_shared = shared.any(1, keepdim=True)
    place = torch.where(is_shared[:, 0], shared.int().argmax(1), width)
    chain = weights[:, None]
    best = torch.where(shared, torch.maximum(all_weights, chain), all_weights)
    extra = torch.where(is_shared, -torch.inf, chain)
    joined = (
        torch.cat([all_tokens, tokens[:, None]], 1),
        torch.cat([all_parents, pad(place[:-1], (1, 0))[:, None]], 1),
        torch.cat([best, extra], 1),
    )
    return [Level(*parts) for parts in zip(*(part.unbind() for part in joined), strict=True)]


def _on_chain(tokens: Tensor, parents: Tensor, weights: Tensor, chain: Tensor) -> Tensor:
    """Return bool [D, width]: True for nodes reached from the root by tokens of the chain."""
    depth, width = tokens.shape
    places = torch.arange(depth * width, device=tokens.device) + 1  # the root is place 0
    level = torch.arange(depth, device=tokens.device)[:, None]
    above = torch.where(level > 0, 1 + (level - 1) * width + parents, 0)
    fits = (tokens == chain[:, None]) & (weights > -torch.inf)
    up = pad(torch.where(fits, above, places.view(depth, width)).flatten(), (1, 0))
    for _ in range(doublings(depth)):
        up = up[up]
    return up[1:].view(depth, width) == 0


def _padding(level: Level) -> Level:
    zeros = torch.zeros_like(level.tokens)
    return Level(zeros, zeros, torch.full_like(level.weights, -torch.inf))
