"""What a drafter is, and the simplest one: none."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor

from specx.decoding.accept import Path
from specx.decoding.cost import TreePlan
from specx.decoding.target import Target
from specx.decoding.tree import TokenTree, root_only
from specx.records import PrefillProgress


class Drafter(Protocol):
    """Proposes a tree of tokens; whatever it proposes, the output stays the target's own."""

    watch: int | None
    """Layer of the target whose attention this drafter wants to know, or None."""

    levels: int
    """The most levels a tree of this drafter has; a step emits at most ``levels + 1`` tokens."""

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        """Read the prompt int64 [L], which the target has read; progress after each chunk.

        The token behind it is committed next, and from then on nothing waits for the device:
        ``grow``, ``commit`` and ``retrieve`` are the same work on the same tensors each time.
        """

    def grow(self, root: Tensor) -> TokenTree:
        """A tree behind ``root`` int64 [1], the last token of the text."""

    def commit(self, path: Path) -> None:
        """The first ``path.count`` of ``path.tokens`` are now the end of the text."""

    def retrieval_due(self, steps: int) -> bool:
        """Whether ``retrieve`` should run before the next tree, after ``steps`` of them."""

    def retrieve(self, target: Target) -> None:
        """Choose anew what to remember of the text."""


@runtime_checkable
class Reshapable(Drafter, Protocol):
    """A drafter whose trees can change their shape, and who can say what they cost."""

    def reshape(self, plan: TreePlan) -> None:
        """Grow other trees from now on. No step may be under way."""

    def rehearse(self, rows: int) -> None:
        """The work of one level with ``rows`` nodes, for its cost alone: nothing comes of it."""


class NoDrafter:
    """Plain decoding: every tree is a bare root."""

    watch: int | None = None
    levels = 0

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        return root_only(root)

    def commit(self, path: Path) -> None:
        pass

    def retrieval_due(self, steps: int) -> bool:  # noqa: ARG002
        return False

    def retrieve(self, target: Target) -> None:
        pass
