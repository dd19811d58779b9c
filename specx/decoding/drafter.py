"""The protocol of a drafter, and the simplest one, which drafts nothing."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from torch import Tensor

from specx.decoding.cost import TreePlan
from specx.decoding.target import Target
from specx.models.call import FeatureSource
from specx.ops.trees import Path, TokenTree, root_only
from specx.records import PrefillProgress, Step


class DraftMode(Enum):
    """A drafter's two ways, each recorded apart: MODEL is the usual one, whoever drafts."""

    MODEL = auto()
    LOOKUP = auto()


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """A drafter's decisions for the next step.

    ``retrieve``: choose anew what to remember, first; ``catch_up``: read what others drafted, next;
    ``mode``: who drafts the tree.
    """

    mode: DraftMode = DraftMode.MODEL
    retrieve: bool = False
    catch_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A step that a drafter learns from.

    ``mode``: who drafted its tree; ``note``: the drafter's own number; ``settled``: its time is
    what such a step takes.
    """

    mode: DraftMode
    step: Step
    note: int | None
    settled: bool


class Drafter(Protocol):
    """Proposes a tree of tokens; whatever it proposes, the output stays the target's own.

    A drafter that inherits from this remembers nothing and decides nothing, unless it says so.
    """

    retrieval_layer: int | None = None
    """Layer of the target whose attention this drafter wants to know, or None."""

    features: FeatureSource | None = None
    """The hidden states of the target that this drafter reads, or None."""

    layout: object = None
    """What its stages work on, where that may be exchanged: each has recorded stages of its own."""

    levels: int
    """The most levels a tree of this drafter has; a step emits at most ``levels + 1`` tokens."""

    def follow(self, prompt: Tensor, done: int, target: Target) -> None:  # noqa: ARG002
        """Take note that the target has read ``done`` tokens of the prompt int64 [L], in a chunk.

        Its features are there until the next one. Asked of a drafter that reads some.
        """
        return  # a drafter that reads the prompt by itself

    @abstractmethod
    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        """Read the prompt int64 [L], which the target has read; progress when a chunk is launched.

        The token behind it is committed next, and from then on nothing waits for the device:
        ``grow``, ``commit``, ``retrieve`` and ``catch_up`` are the same work on the same tensors
        each time; ``grow`` and ``commit`` are so once the target has read the prompt, and may be
        recorded before this. If this does not wait either, they are prepared while the device still
        reads.
        """

    @abstractmethod
    def grow(self, root: Tensor) -> TokenTree:
        """Grow a tree behind ``root`` int64 [1], the last token of the text."""

    @abstractmethod
    def commit(self, path: Path) -> None:
        """Take the first ``path.count`` of ``path.tokens`` as the new end of the text."""

    def note(self) -> Tensor | None:
        """Return a number, int64 [1], that ``learn`` is to get with the step committed last."""
        return None

    def retrieve(self, target: Target) -> None:  # noqa: ARG002
        """Choose anew what to remember of the text."""
        return  # a drafter that remembers nothing

    def catch_up(self) -> None:
        """Read what was emitted while others drafted; after ``retrieve``, before ``grow``."""
        return  # a drafter that never falls behind

    # On the host, outside of what is recorded: asked before each step, told after it.

    def prefill_seconds(self) -> float:
        """Return the seconds spent on reading the prompt since this was last asked.

        Not of ``prefill``, which its caller can time, but of what is read later.
        """
        return 0.0

    @contextmanager
    def laid_out(self, plan: TreePlan | None) -> Iterator[None]:  # noqa: ARG002
        """Work for the trees of ``plan`` in this context; None: for those in use."""
        yield

    def begin(self) -> bool:
        """Forget all of the text, for another one; return False if that is not possible.

        Tensors stay where they are, so that what was recorded holds, but for ``retrieve``.
        """
        return False

    def plan(self, steps: int) -> StepPlan:  # noqa: ARG002
        """Decide on the next step, after ``steps`` of them; asked once for each."""
        return StepPlan()

    def learn(self, outcome: Outcome) -> None:  # noqa: ARG002
        """Take note of a step, once it is known: on a GPU the next one is on its way by then."""
        return  # a drafter that decides nothing


@runtime_checkable
class Reshapable(Drafter, Protocol):
    """A drafter whose trees can change their shape, and whose parts can be timed."""

    @property
    def kind(self) -> str:
        """A name of all that its costs depend on, besides the models, the text and the trees."""

    @property
    def retrieves(self) -> bool:
        """True if it chooses anew what to remember, now and then."""

    def reshape(self, plan: TreePlan) -> None:
        """Grow other trees from now on. No step may be under way."""

    def forget_layouts(self) -> bool:
        """Forget all layouts but the one in use, if there are many; return True if so."""

    def draft_level(self, rows: int) -> None:
        """Do the work of one level with ``rows`` nodes, for its cost alone: nothing changes."""


class NoDrafter(Drafter):
    """Plain decoding: every tree is a bare root, whose constant parts are made once."""

    levels = 0
    _tree: TokenTree | None = None

    def begin(self) -> bool:
        return True

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        if self._tree is None or self._tree.tokens is not root:
            self._tree = root_only(root)
        return self._tree

    def commit(self, path: Path) -> None:
        pass
