"""The records that travel from decoding to progress, summary and report. No torch here.

Definitions used everywhere (``docs/algorithm.md``):

- acceptance length τ: emitted tokens per target verification pass that had drafts to verify, the
  bonus token included;
- accepted drafts per step: the same without the bonus token;
- acceptance rate at position i: unconditional, the share of drafting steps that accepted at least
  i drafts; conditional, the share among the steps that accepted at least i − 1.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

Method = Literal["plain", "tree", "streaming", "specextend", "lookup", "specextend+lookup"]
METHODS: tuple[Method, ...] = get_args(Method)
WITHOUT_DRAFT: frozenset[Method] = frozenset(("plain", "lookup"))  # no model drafts
FinishReason = Literal["end", "length", "window"]


@dataclass
class Timings:
    """Seconds spent in each part of one document's way. ``host`` is what no other part claims."""

    read: float = 0.0
    tokenize: float = 0.0
    load: float = 0.0
    target_prefill: float = 0.0
    draft_prefill: float = 0.0
    drafting: float = 0.0
    verification: float = 0.0
    keep: float = 0.0
    retrieval: float = 0.0
    host: float = 0.0
    total: float = 0.0

    def add(self, other: "Timings") -> None:
        """Add the other's seconds to these, part by part."""
        for part, seconds in vars(other).items():
            setattr(self, part, getattr(self, part) + seconds)


@dataclass(frozen=True)
class PrefillProgress:
    """``done`` of ``total`` prompt tokens have been read by ``model``."""

    model: Literal["target", "draft"]
    done: int
    total: int


@dataclass(frozen=True)
class Step:
    """What one step emitted.

    ``tokens``: emitted token ids, end of text included when it came. ``drafted``: nodes of the
    tree; 0 in plain decoding. ``accepted``: drafts among ``tokens``. ``seconds``: wall clock.
    ``passes``: target verification passes, 0 only for the first token, which prefill decides.
    ``levels``: of the tree. ``places``: of each accepted draft, its place among the nodes of the
    tree and among those of its level, from 1, the likeliest first.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    seconds: float
    passes: int = 1
    levels: int = 0
    places: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FellBack:
    """Drafting did not pay, and plain decoding goes on.

    ``speedup``: measured tokens per second over those of plain decoding, below ``below``.
    """

    speedup: float
    below: float


@dataclass
class Speedup:
    """Seconds behind the speedup over plain decoding, of steps that drafted at full speed.

    ``plain``: what their tokens would have taken in plain decoding, by the time of a plain token
    in the same run; ``measured``: what they took; ``predicted``: what the cost model says.
    """

    plain: float = 0.0
    measured: float = 0.0
    predicted: float = 0.0

    def add(self, other: "Speedup") -> None:
        """Add the seconds of another document or part."""
        self.plain += other.plain
        self.measured += other.measured
        self.predicted += other.predicted

    def ratios(self) -> dict[str, float] | None:
        """``predicted`` and ``measured`` speedup, or None where no such step was seen."""
        if not self.plain:
            return None
        return {
            "predicted": self.plain / self.predicted,
            "measured": self.plain / self.measured,
        }


@dataclass(frozen=True)
class Finished:
    """Decoding ended: ``end`` (end of text), ``length`` (token limit) or ``window``.

    ``window``: no room was left, even if the token limit was reached at the same token.
    ``decoding``: seconds from the first token to the last, on a GPU by its own clock; the draft's
    prefill, which lies between them, is counted in.
    """

    reason: FinishReason
    timings: Timings
    speedup: Speedup = field(default_factory=Speedup)
    decoding: float = 0.0


Event = PrefillProgress | Step | FellBack | Finished


@dataclass
class Tally:
    """Sums over the steps of one run, from which every figure of the report follows."""

    tokens: int = 0
    decoded_tokens: int = 0  # without those that prefill decided
    steps: int = 0
    drafting_steps: int = 0
    drafting_tokens: int = 0
    seconds: float = 0.0
    accepted: Counter[int] = field(default_factory=Counter)  # drafts accepted -> drafting steps

    def add(self, step: Step) -> None:
        self.tokens += len(step.tokens)
        self.decoded_tokens += len(step.tokens) if step.passes else 0
        self.seconds += step.seconds
        self.steps += step.passes
        if step.drafted:
            self.drafting_steps += 1
            self.drafting_tokens += len(step.tokens)
            self.accepted[step.accepted] += 1

    @property
    def acceptance_length(self) -> float:
        """τ; 1.0 where nothing was drafted, as each pass of plain decoding emits one token."""
        return self.drafting_tokens / self.drafting_steps if self.drafting_steps else 1.0

    @property
    def accepted_per_step(self) -> float:
        drafts = sum(count * steps for count, steps in self.accepted.items())
        return drafts / self.drafting_steps if self.drafting_steps else 0.0

    def acceptance_by_position(self) -> dict[str, list[float]]:
        """Acceptance rates at positions 1, 2, …, up to the longest accepted run."""
        longest = max(self.accepted, default=0)
        reached = [
            sum(steps for count, steps in self.accepted.items() if count >= position)
            for position in range(longest + 1)
        ]
        return {
            "conditional": [reached[i] / reached[i - 1] for i in range(1, longest + 1)],
            "unconditional": [reached[i] / reached[0] for i in range(1, longest + 1)],
        }
