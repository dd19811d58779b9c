"""A draft model and lookup together: one tree of both, or lookup alone where text is copied."""

from collections import deque
from collections.abc import Iterator

from torch import Tensor

from specx.decoding.branches import with_branch
from specx.decoding.drafter import Drafter, DraftMode, Outcome, StepPlan
from specx.decoding.lookup import REACH, Lookup
from specx.decoding.lookup_drafter import lookup_tree
from specx.decoding.model_drafter import AT_ONCE, ModelDrafter
from specx.decoding.selector import DrafterSelector
from specx.decoding.target import Target
from specx.ops.trees import Path, TokenTree
from specx.records import PrefillProgress

BEHIND = 4 * AT_ONCE  # tokens that the model may have missed: what it never needs it never reads
GAIN_UNIT = 1000  # notes are whole numbers: thousandths of a token


class JoinedDrafter(Drafter):
    """The model's tree with lookup's chain as one more branch.

    Where lookup does well enough alone, the model drafts nothing and falls behind; it reads what it
    missed in long chains. The host knows how far behind it can be at most, so shapes stay fixed.
    Alone, lookup proposes a chain of REACH tokens; in the model's tree as many as that has levels.
    """

    def __init__(self, model: ModelDrafter, max_tokens: int) -> None:
        """``model``: its plan reserves a node of each level, and lets it fall BEHIND in steps of
        REACH tokens and one more.

        ``max_tokens``: the longest that prompt and output can become together.
        """
        self._model, self.levels = model, max(model.levels, REACH)
        self.retrieval_layer, self.features = model.retrieval_layer, model.features
        self._lookup = Lookup(self.levels, max_tokens, model.model.device)
        self._decide_anew()

    def _decide_anew(self) -> None:
        self._selector = DrafterSelector(self._model.levels)
        self._mode = DraftMode.MODEL
        self._unread = 1  # tokens of the text that the model has not read, at most
        # Of each step that nothing is known of yet: its share of these, 0 if it has been read.
        self._in_flight: deque[int] = deque()

    def begin(self) -> bool:
        self._decide_anew()
        return self._model.begin()

    def follow(self, prompt: Tensor, done: int, target: Target) -> None:
        self._model.follow(prompt, done, target)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        self._lookup.begin(prompt)
        return self._model.prefill(prompt, target)

    def plan(self, steps: int) -> StepPlan:
        model_drafts = self._selector.model_drafts()
        step = (self._model.levels if model_drafts else self.levels) + 1  # tokens, at most
        if model_drafts:
            self._mode, is_behind = DraftMode.MODEL, self._unread > step
        else:
            self._mode, is_behind = DraftMode.LOOKUP, self._unread + step > BEHIND
        if model_drafts or is_behind:
            self._unread = 0 if model_drafts else 1
            self._in_flight = deque([0] * len(self._in_flight))
        self._unread += step
        self._in_flight.append(step)
        model_works = self._mode is DraftMode.MODEL or is_behind
        retrieve = model_works and self._model.retrieval_due(steps)
        return StepPlan(mode=self._mode, retrieve=retrieve, catch_up=is_behind)

    def catch_up(self) -> None:
        """Read all but the last token: from it the next tree is drafted."""
        for _ in range(BEHIND // AT_ONCE):
            read = self._model.cache.text_length
            unread = (self._lookup.length - 1 - read).clamp(0, AT_ONCE)
            if read.device.type == "cpu" and not unread:  # elsewhere a look takes longer
                return
            self._model.read_ahead(self._lookup.read(read, AT_ONCE), unread)

    def grow(self, root: Tensor) -> TokenTree:
        if self._mode is DraftMode.LOOKUP:
            return lookup_tree(self._lookup, root, self._model.draft_plan.tree.threshold)
        read = self._model.cache.text_length
        depth = self._model.levels
        unread = self._lookup.read(read, depth + 1)
        self._model.pend(unread, self._lookup.length - read)
        levels = self._model.grow_levels()
        joined = with_branch(levels, self._lookup.chain[:depth], self._lookup.weights[:depth])
        return self._model.model.ops.best_tree(root, joined)

    def commit(self, path: Path) -> None:
        self._lookup.append(path.tokens, path.count)

    def note(self) -> Tensor:
        return (GAIN_UNIT * self._lookup.gain).round().long()[None]

    def retrieve(self, target: Target) -> None:
        self._model.retrieve(target)

    def prefill_seconds(self) -> float:
        return self._model.prefill_seconds()

    def learn(self, outcome: Outcome) -> None:
        assert outcome.note is not None
        if counted := self._in_flight.popleft():
            self._unread -= counted - len(outcome.step.tokens)
        gain, drafted = outcome.note / GAIN_UNIT, outcome.mode is DraftMode.MODEL
        self._selector.learn(outcome.step, gain, model_drafted=drafted, settled=outcome.settled)
        if drafted:
            self._model.learn(outcome)
