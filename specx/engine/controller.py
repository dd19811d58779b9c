"""The controller of a document: it decides between steps whether and how to go on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specx.engine.cost import TreePlan
from specx.engine.drafter import Drafter, Reshapable
from specx.engine.fallback import Fallback
from specx.engine.speedup_meter import SpeedupMeter
from specx.engine.tree_choice import KnownTexts, TreeChoice
from specx.profile import AutoTree, Profile
from specx.records import FellBack, FinishReason, Speedup, Step, Stop


@dataclass
class Budget:
    """The tokens that may still be emitted. ``reason`` says why the text ended, once it has.

    ``at_limit``: the reason to give when ``left`` tokens have been spent. ``stop``: the caller's
    judge of the text, which is not asked about the end of text.
    """

    end_of_text: frozenset[int]
    left: int
    at_limit: FinishReason
    stop: Stop | None = None
    reason: FinishReason | None = None

    @property
    def is_spent(self) -> bool:
        return self.reason is not None

    def spend(self, step: Step) -> Step:
        """Return the step without tokens beyond the end of text, a stop or the limit."""
        tokens = step.tokens[: self.left]
        for place, token in enumerate(tokens, start=1):
            self.reason = self._ends_at(token)
            if self.reason:
                tokens = tokens[:place]
                break
        self.left -= len(tokens)
        if self.left == 0 and not self.reason:
            self.reason = self.at_limit
        if len(tokens) == len(step.tokens):
            return step
        return replace(step, tokens=tokens, accepted=min(step.accepted, len(tokens)))

    def _ends_at(self, token: int) -> FinishReason | None:
        if token in self.end_of_text:
            return "end"
        return self.stop(token) if self.stop else None

    def spend_all(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Spend steps until the text ends."""
        while not self.is_spent and (step := next(steps, None)):
            yield self.spend(step)


@dataclass
class Controller:
    """Decides after each step: go on, draft other trees, decode plainly, or stop.

    ``budget`` stops. ``strategy`` compares drafting with plain decoding: fallback to plain decoding
    alone, or the choice of the tree together with it; None where nothing is compared, or no more.
    When a draft retrieves and who drafts are decided a step earlier, before it is launched
    (``Drafter.plan``).
    """

    budget: Budget
    strategy: Fallback | TreeChoice | None
    _meter: SpeedupMeter = field(default_factory=SpeedupMeter)
    _plain_seconds: float | None = None
    _plain_steps: int = 0

    @classmethod
    def of(
        cls, profile: Profile, drafter: Drafter, budget: Budget, known: KnownTexts
    ) -> "Controller":
        """Return the controller that a profile asks for. ``known``: as of ``Pair``."""
        below = profile.fallback.below
        if drafter.levels == 0:
            return cls(budget, None)
        if isinstance(profile.tree, AutoTree) and isinstance(drafter, Reshapable):
            choice = TreeChoice(Fallback(below or 0.0), known.setdefault(drafter.kind, {}))
            return cls(budget, choice)
        return cls(budget, None if below is None else Fallback(below))

    @property
    def needs_plain(self) -> bool:
        """True if the next step should decode plainly, to be measured."""
        return self.strategy is not None and self.strategy.needs_plain and not self.budget.is_spent

    def note_plain(self, step: Step, *, settled: bool) -> None:
        """Take note of a plain step; ``settled``: its time is what such a step takes.

        The first is a warm-up anyway.
        """
        if self.strategy is not None and (settled or not self._plain_steps):
            self._plain_steps += 1
            self.strategy.note(step)
            if not self.strategy.needs_plain:
                self._plain_seconds = self.strategy.plain_seconds

    def decide(
        self, place: int, step: Step, *, settled: bool, verification: float | None = None
    ) -> FellBack | TreePlan | None:
        """Decide after a drafting step, the ``place``-th of all, from 0; None: go on.

        ``verification``: the seconds that it took, where they are known already.
        """
        if self.strategy is None or not settled:
            return None
        if verification is not None:
            self.strategy.note_verification(verification)
        self._meter.note(place, step, self.strategy.modelled(step))
        verdict = self.strategy.judge(step)
        if self.budget.is_spent:
            return None
        if isinstance(verdict, FellBack):
            self.strategy = None
        return verdict

    def speedup(self, samples: Mapping[str, Sequence[float]]) -> Speedup:
        """Return the seconds behind the speedup; ``samples``: of each part, step by step."""
        if self._plain_seconds is None:
            return Speedup()
        return self._meter.speedup(self._plain_seconds, samples)
