"""Which drafts the target agrees with: the pure heart of verification."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specx.kernels import fused
from specx.kernels.trees import TokenTree, doublings


@dataclass(frozen=True)
class Path:
    """The accepted way through a tree, padded to the deepest that is possible.

    ``rows`` int64 [levels + 1]: rows of the tree, root first; ``tokens`` int64 [levels + 1]: the
    target's choice at each of them, so the last of the first ``count`` is the bonus token. Beyond
    ``count`` (a tensor, at least 1) both repeat the last entry.
    """

    rows: Tensor
    tokens: Tensor
    count: Tensor

    @classmethod
    def of(cls, token: Tensor) -> "Path":
        """The path to one emitted token, int64 [1], that no tree proposed."""
        return cls(torch.zeros_like(token), token, torch.ones_like(token[0]))

    @property
    def last(self) -> Tensor:
        """The token at the end of the path: int64 [1]."""
        return self.tokens[-1:]

    @property
    def last_row(self) -> Tensor:
        """The row of the tree that chose it: int64 [1]."""
        return self.rows[-1:]


def accept(tree: TokenTree, choices: Tensor) -> Path:
    """Follow, from the root, the child that the target chose; stop where no child matches.

    ``choices`` int64 [T]: the target's token after each row, its argmax or a draw from its own
    distribution. Since the emitted tokens are the choices themselves, the output is distributed
    as the target's for any tree, however its children were found (SpecExtend keeps this rule for
    OPT-Tree; recursive rejection sampling would be biased for deterministic children).
    """
    if fused.serves(choices):
        from specx.kernels.triton import verify as triton_verify

        return Path(*triton_verify.follow(tree, choices))
    rows = torch.arange(len(tree.tokens), device=choices.device)
    matches = tree.valid & (tree.tokens == choices[tree.parents])
    # Only ways of matches lead up to the root: any other row leads nowhere but to itself.
    above = torch.where(matches, tree.parents, rows)
    for _ in range(doublings(tree.levels)):
        above = above[above]
    accepted = above == 0
    # One accepted row a depth: siblings have different tokens. The others go to a spare slot.
    slots = torch.where(accepted, tree.depths, tree.levels + 1)
    path = torch.zeros(tree.levels + 2, dtype=torch.int64, device=choices.device)
    # Rows rise along a path, so the greatest so far is the last one where the path has ended.
    path = path.scatter(0, slots, rows)[:-1].cummax(0).values
    return Path(path, choices[path], accepted.sum())
