"""The stages of a step, in the order in which they run: retrieve, catch up, draft, verify, keep.
Where tokens are penalized, verification is two stages, so that their cost is known.

Each is the same work on the same memory in every step, so it can be recorded (``runner.py``).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specx.decoding.drafter import Drafter
from specx.decoding.emission import Emission
from specx.decoding.sampling import Sampler
from specx.decoding.target import Target
from specx.ops.contract import Ops
from specx.ops.trees import Path, TokenTree


@dataclass(frozen=True)
class TextEnd:
    """The end of the text on the device, changed in place.

    ``root`` int64 [1]: the last emitted token, which the target has not read yet. ``emitted`` int64
    [1]: tokens of the output so far, the root among them.
    """

    root: Tensor
    emitted: Tensor

    @classmethod
    def on(cls, device: torch.device) -> "TextEnd":
        """Return the end of a text whose first token is about to be emitted."""
        one = torch.ones(1, dtype=torch.int64, device=device)
        return cls(torch.zeros_like(one), one)

    def begin(self) -> None:
        """Make it the end of such a text again."""
        self.root.zero_()
        self.emitted.fill_(1)


@dataclass(frozen=True, eq=False)
class Retrieve:
    """Choose anew which chunks the draft works on (cross-model retrieval)."""

    drafter: Drafter
    target: Target

    def work(self) -> None:
        self.drafter.retrieve(self.target)


@dataclass(frozen=True, eq=False)
class CatchUp:
    """Have the draft read what was emitted while others drafted."""

    drafter: Drafter

    def work(self) -> None:
        self.drafter.catch_up()


@dataclass(frozen=True, eq=False)
class Draft:
    """Grow a tree behind the last token of the text; ``alone``: by lookup, without the model."""

    drafter: Drafter
    alone: bool

    def work(self, root: Tensor) -> TokenTree:
        return self.drafter.look_up(root) if self.alone else self.drafter.grow(root)


@dataclass(frozen=True, eq=False)
class Verify:
    """Read the tree with the target, and follow its own choices through it."""

    target: Target
    sampler: Sampler
    end: TextEnd

    def work(self, tree: TokenTree) -> Path:
        choices = self.sampler.follow(self.target.verify(tree), tree, self.end.emitted)
        return self.target.ops.accept(tree, choices)


@dataclass(frozen=True, eq=False)
class Read:
    """Read the tree with the target: the first half of ``Verify``, where penalties are timed."""

    target: Target

    def work(self, tree: TokenTree) -> Tensor:
        return self.target.verify(tree)


@dataclass(frozen=True, eq=False)
class Penalize:
    """Penalize what the text has already and follow the target's choices: the second half."""

    ops: Ops
    sampler: Sampler
    end: TextEnd

    def work(self, tree: TokenTree, logits: Tensor) -> Path:
        return self.ops.accept(tree, self.sampler.follow(logits, tree, self.end.emitted))


@dataclass(frozen=True, eq=False)
class Keep:
    """Make the accepted path the end of the text, for target and draft."""

    target: Target
    drafter: Drafter
    sampler: Sampler
    end: TextEnd

    def work(self, tree: TokenTree, path: Path) -> Emission:
        readable = path.readable()
        self.target.keep(path)
        self.drafter.commit(readable)
        self.sampler.keep(readable)
        self.end.root.copy_(readable.last)
        self.end.emitted.add_(path.count)
        return Emission.of(tree, path, self.drafter.note())


@dataclass(frozen=True)
class TreeStages:
    """The stages that trees of each number of rows have of their own."""

    draft: Draft
    verify: Verify | tuple[Read, Penalize]
    keep: Keep


@dataclass
class Stages:
    """All stages of a document with one drafter."""

    target: Target
    drafter: Drafter
    sampler: Sampler
    end: TextEnd
    retrieve: Retrieve = field(init=False)
    catch_up: CatchUp = field(init=False)
    _known: dict[tuple[object, bool], TreeStages] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.retrieve = Retrieve(self.drafter, self.target)
        self.catch_up = CatchUp(self.drafter)

    def of(self, *, alone: bool = False) -> TreeStages:
        """Return the stages of trees, the same ones each time that the drafter is laid out so.

        ``alone``: of those that lookup drafts alone.
        """
        key = self.drafter.layout, alone
        if key not in self._known:
            verify: Verify | tuple[Read, Penalize] = Verify(self.target, self.sampler, self.end)
            if self.sampler.penalizes:
                penalize = Penalize(self.target.ops, self.sampler, self.end)
                verify = Read(self.target), penalize
            self._known[key] = TreeStages(
                Draft(self.drafter, alone),
                verify,
                Keep(self.target, self.drafter, self.sampler, self.end),
            )
        return self._known[key]
