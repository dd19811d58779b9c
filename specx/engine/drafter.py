"""What a drafter is, and the simplest one: none."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import Tensor

from specx.engine.accept import Path
from specx.engine.cost import TreePlan
from specx.engine.target import Target
from specx.kernels.trees import TokenTree, root_only
from specx.records import PrefillProgress, Step


@dataclass(frozen=True)
class Outcome:
    """What a drafter learns of a step: in which ``mode`` it was drafted, what it emitted, the
    drafter's own ``note``, and whether its time is what such a step takes (``settled``)."""

    mode: str
    step: Step
    note: int | None
    settled: bool


class Drafter(Protocol):
    """Proposes a tree of tokens; whatever it proposes, the output stays the target's own.

    A drafter that inherits from this remembers nothing and decides nothing, unless it says so.
    """

    watch: int | None = None
    """Layer of the target whose attention this drafter wants to know, or None."""

    levels: int
    """The most levels a tree of this drafter has; a step emits at most ``levels + 1`` tokens."""

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        """Read the prompt int64 [L], which the target has read; progress when a chunk is launched.

        The token behind it is committed next, and from then on nothing waits for the device:
        ``grow``, ``commit``, ``retrieve`` and ``catch_up`` are the same work on the same tensors
        each time. If this does not wait either, they are prepared while the device still reads.
        """

    def grow(self, root: Tensor) -> TokenTree:
        """A tree behind ``root`` int64 [1], the last token of the text."""

    def commit(self, path: Path) -> None:
        """The first ``path.count`` of ``path.tokens`` are now the end of the text."""

    def note(self) -> Tensor | None:
        """A number, int64 [1], that ``learn`` is to get with the step that was committed last."""
        return None

    # Host decisions: asked once before each tree, in this order, and told once after it.

    def mode(self) -> str:
        """What the next ``grow`` does, if there is a choice.

        Each mode has graphs of its own for drafting, verification and keep.
        """
        return ""

    def retrieval_due(self, steps: int) -> bool:  # noqa: ARG002
        """Whether ``retrieve`` should run before the next tree, after ``steps`` of them."""
        return False

    def retrieve(self, target: Target) -> None:  # noqa: ARG002
        """Choose anew what to remember of the text."""
        return  # a drafter that remembers nothing

    def is_behind(self) -> bool:
        """Whether ``catch_up`` should run before the next tree."""
        return False

    def catch_up(self) -> None:
        """Read what was emitted while others drafted; after ``retrieve``, before ``grow``."""
        return  # a drafter that never falls behind

    def learn(self, outcome: Outcome) -> None:  # noqa: ARG002
        """What a step came to, once it is known: on a GPU the next one is on its way by then."""
        return  # a drafter that decides nothing


@runtime_checkable
class Reshapable(Drafter, Protocol):
    """A drafter whose trees can change their shape, and who can say what they cost."""

    @property
    def kind(self) -> str:
        """What its costs depend on, besides the models, the text and the trees."""

    @property
    def retrieves(self) -> bool:
        """Whether it chooses anew what to remember, now and then."""

    def reshape(self, plan: TreePlan) -> None:
        """Grow other trees from now on. No step may be under way."""

    def rehearse(self, rows: int) -> None:
        """The work of one level with ``rows`` nodes, for its cost alone: nothing comes of it."""


class NoDrafter(Drafter):
    """Plain decoding: every tree is a bare root. What says so is made once."""

    levels = 0
    _tree: TokenTree | None = None

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        self._tree = self._tree or root_only(root)
        return replace(self._tree, tokens=root)

    def commit(self, path: Path) -> None:
        pass
