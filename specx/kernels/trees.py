"""The token tree of one step, in fixed shapes, and the rule that picks its nodes (OPT-Tree)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

MAX_ROWS = 64  # root and nodes: the ancestors of a node are one 64-bit set


@dataclass(frozen=True)
class TokenTree:
    """Root and N drafted nodes, as T = N + 1 rows for one target forward.

    ``tokens``, ``parents``, ``depths`` int64 [T]; row 0 is the root, the last token of the text,
    and a parent's row is below its child's. ``valid`` bool [T]: padding rows are false, hang on
    the root and are never accepted. ``levels``: the most levels the tree can have. ``sets``: what
    ``ancestors`` gives, if it is known.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    valid: Tensor
    levels: int
    sets: Tensor | None = None

    @property
    def nodes(self) -> int:
        """Drafted rows, padding included; 0 in plain decoding."""
        return len(self.tokens) - 1

    def ancestors(self) -> Tensor:
        """int64 [T]: bit j of entry i says that row j is row i or one of its ancestors."""
        if self.sets is not None:
            return self.sets
        rows = torch.arange(len(self.parents), device=self.parents.device)
        sets, above = torch.ones_like(self.parents) << rows, self.parents
        for _ in range(doublings(self.levels)):
            sets, above = sets | sets[above], above[above]
        return sets


def doublings(levels: int) -> int:
    """How often a way up must be doubled to reach the root from ``levels`` levels below it."""
    return levels.bit_length()


def root_only(root: Tensor) -> TokenTree:
    """The tree of plain decoding: root int64 [1], nothing drafted."""
    zero, one = torch.zeros_like(root), torch.ones_like(root)
    return TokenTree(root, zero, zero, one.bool(), levels=0, sets=one)


@dataclass(frozen=True)
class Level:
    """The N best continuations on one level, the best first: all [N].

    ``weights``: log of the product of draft probabilities along the path, −inf for padding;
    ``parents``: place in the level above (0 on the first level, whose parent is the root).
    """

    tokens: Tensor
    parents: Tensor
    weights: Tensor

    def best(self, count: int) -> "Level":
        """The first ``count`` of them."""
        return Level(self.tokens[:count], self.parents[:count], self.weights[:count])


def best_continuations(logprobs: Tensor, weights: Tensor, nodes: int) -> Level:
    """The best ``nodes`` children over all parents.

    logprobs [P, V] of the draft at each parent; weights [P] of the parents' paths.
    """
    # No node can have more than `nodes` children among the best, so V shrinks before the sum.
    best = logprobs.topk(min(nodes, logprobs.shape[1]), dim=1)
    paths = (weights[:, None] + best.values).flatten()
    chosen = paths.topk(min(nodes, len(paths)))
    tokens = best.indices.flatten()[chosen.indices]
    parents = chosen.indices // best.indices.shape[1]
    missing = nodes - len(tokens)
    return Level(
        pad(tokens, (0, missing)),
        pad(parents, (0, missing)),
        pad(chosen.values, (0, missing), value=-torch.inf),
    )


def expected_gain(levels: list[Level], nodes: int) -> Tensor:
    """Expected accepted drafts of the best tree so far: the sum of its nodes' path weights."""
    return torch.cat([level.weights for level in levels]).topk(nodes).values.exp().sum()


def best_tree(root: Tensor, levels: list[Level]) -> TokenTree:
    """The N best nodes over all levels, as a tree behind ``root`` int64 [1].

    A path never weighs more than its beginning, so the best nodes are a tree if ties go to the
    shallower node: levels lie in order and the sort is stable. (A saturated draft ties often; a
    sort that broke ties otherwise would orphan nodes.) Padding weighs −inf, less than any node.
    """
    nodes = len(levels[0].tokens)
    weights, order = torch.cat([level.weights for level in levels]).sort(
        descending=True, stable=True
    )
    links = torch.cat([level.tokens for level in levels] + [level.parents for level in levels])
    # Rows by place among all levels, behind a level of nothing but the root, row 0.
    rows = torch.arange(1 - nodes, len(order) + 1, device=order.device).clamp(min=0)
    row_of = rows.index_copy(0, order + nodes, rows[nodes:])
    chosen, valid = order[:nodes], weights[:nodes] > -torch.inf
    tokens, parents = links.view(2, -1)[:, chosen]
    above = chosen // nodes  # levels above the node's own
    return TokenTree(
        tokens=torch.cat([root, tokens * valid]),
        parents=pad(row_of[above * nodes + parents] * valid, (1, 0)),
        depths=pad(above * valid + 1, (1, 0)),
        valid=pad(valid, (1, 0), value=True),
        levels=len(levels),
    )
