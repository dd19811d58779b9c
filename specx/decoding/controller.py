"""The controller of a document: it decides between steps whether and how to go on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specx.decoding.cost import TreePlan
from specx.decoding.drafter import Drafter, Reshapable
from specx.decoding.fallback import Fallback, PlainTimes
from specx.decoding.speedup_meter import SpeedupMeter
from specx.decoding.tree_choice import KnownTexts, TreeChoice
from specx.errors import ModelError
from specx.ops.trees import NO_CHOICE
from specx.profile import AutoTree, Settings
from specx.records import FellBack, FinishReason, Speedup, Step, Stop


@dataclass
class Budget:
    """The tokens that may still be emitted. ``reason`` says why the text ended, once it has.

    ``at_limit``: the reason to give when ``left`` tokens have been spent. ``stop``: the caller's
    judge of the text, which is not asked about the end of text. ``target``: its name and dtype, for
    the error about logits that are not finite.
    """

    end_of_text: frozenset[int]
    left: int
    at_limit: FinishReason
    stop: Stop | None = None
    reason: FinishReason | None = None
    target: str = "the model"

    @property
    def is_spent(self) -> bool:
        return self.reason is not None

    def spend(self, step: Step) -> Step:
        """Return the step without tokens beyond the end of text, a stop or the limit.

        Raises ModelError at a token that no logits could choose.
        """
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
        if token == NO_CHOICE:
            raise ModelError(
                f"the target {self.target} computes numbers that are not finite, so no token can "
                "be chosen; choose the dtype float32 or bfloat16 in the profile, or, if it has "
                "that already, download the model again"
            )
        return self.stop(token) if self.stop else None

    def spend_all(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Spend steps until the text ends."""
        while not self.is_spent and (step := next(steps, None)):
            yield self.spend(step)


def strategy_for(
    settings: Settings, drafter: Drafter, known: KnownTexts
) -> Fallback | TreeChoice | None:
    """Return the comparison with plain decoding that settings ask for, None for none.

    ``known``: as of ``Pair``.
    """
    below = settings.fallback
    if drafter.levels == 0:
        return None
    if isinstance(settings.tree, AutoTree) and isinstance(drafter, Reshapable):
        return TreeChoice(Fallback(below or 0.0), known.setdefault(drafter.kind, {}))
    return None if below is None else Fallback(below)


@dataclass
class Controller:
    """Decides after each step: go on, draft other trees, decode plainly, or stop.

    ``budget`` stops. ``strategy`` compares drafting with plain decoding: fallback to plain decoding
    alone, or the choice of the tree together with it; None where nothing is compared, or no more.
    When a draft retrieves and who drafts are decided a step earlier, before it is launched
    (``Drafter.plan``). ``tokens``: of the prompt; ``times``: of plain tokens in other texts, None
    where they are measured in each.
    """

    budget: Budget
    strategy: Fallback | TreeChoice | None
    tokens: int
    times: PlainTimes | None = None
    _meter: SpeedupMeter = field(default_factory=SpeedupMeter)
    _plain_seconds: float | None = None
    _plain_steps: int = 0

    def __post_init__(self) -> None:
        if self.strategy is not None and self.times is not None:
            self._plain_seconds = self.times.take(self.tokens)
            if self._plain_seconds is not None:
                self.strategy.expect(self._plain_seconds)

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
                if self.times is not None:
                    self.times.note(self.tokens, self._plain_seconds)

    def decide(
        self, place: int, step: Step, *, settled: bool, verification: float | None = None
    ) -> FellBack | TreePlan | None:
        """Decide after a drafting step, the ``place``-th of all, from 0; None: go on.

        ``verification``: the seconds that it took, where they are known already.
        """
        if self.strategy is None or not settled:
            return None
        if verification is not None:
            self.strategy.note_verification(step.drafted, verification)
        self._meter.note(place, step, self.strategy.modelled(step))
        verdict = self.strategy.judge(step)
        if self.budget.is_spent:
            return None
        if isinstance(verdict, FellBack):
            self.strategy = None
            if self.times is not None:  # others may have begun to use the device
                self.times.forget(self.tokens)
        return verdict

    def speedup(self, samples: Mapping[str, Sequence[float]]) -> Speedup:
        """Return the seconds behind the speedup; ``samples``: of each part, step by step."""
        if self._plain_seconds is None:
            return Speedup()
        return self._meter.speedup(self._plain_seconds, samples)
