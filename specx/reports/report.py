"""The report of one document: what was read, what was written, how fast, and on what."""

from dataclasses import asdict, dataclass, field
from typing import Any

from specx.records import Speedup, Tally, Timings

SCHEMA = "specx.report/1"


@dataclass(frozen=True)
class Citation:
    """A sentence of a digest and where it stands. ``paragraph`` counts from 1 in the document;
    ``page`` is None where the format has none."""

    paragraph: int
    page: int | None
    sentence: str


@dataclass(frozen=True)
class InputFacts:
    """``prompt_tokens``: over all parts. ``pages``: 0 where the format has none."""

    name: str
    pages: int
    characters: int
    prompt_tokens: int
    parts: int


@dataclass(frozen=True)
class LosslessCheck:
    """Outcome of ``--check-lossless``: the first token at which plain decoding differs, if any.

    ``logit_gap``: difference of the two tokens' logits in plain decoding.
    """

    identical: bool
    position: int | None = None
    logit_gap: float | None = None


@dataclass
class Report:
    """Everything a user or a program may want to know of one summary."""

    input: InputFacts
    profile: str
    method: str
    summary: str
    tally: Tally
    timings: Timings
    peak_memory_bytes: int
    environment: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)  # the profile as it was run
    citations: list[Citation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lossless: LosslessCheck | None = None
    speedup: Speedup = field(default_factory=Speedup)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; its keys are stable within a schema version."""
        tally, timings = self.tally, self.timings
        decode_s = tally.seconds
        result = {
            "schema": SCHEMA,
            "input": asdict(self.input),
            "profile": self.profile,
            "method": self.method,
            "summary": self.summary,
            "citations": [asdict(citation) for citation in self.citations],
            "generated_tokens": tally.tokens,
            "steps": tally.steps,
            "acceptance_length": round(tally.acceptance_length, 4),
            "accepted_per_step": round(tally.accepted_per_step, 4),
            "acceptance_by_position": {
                kind: [round(rate, 4) for rate in rates]
                for kind, rates in tally.acceptance_by_position().items()
            },
            "tokens_per_second": {
                "decode": _rate(tally.decoded_tokens, decode_s),
                "end_to_end": _rate(tally.tokens, timings.total),
            },
            "speedup": _rounded(self.speedup.ratios()),
            "timings_s": {part: round(seconds, 6) for part, seconds in vars(timings).items()},
            "peak_memory_bytes": self.peak_memory_bytes,
            "environment": self.environment,
            "settings": self.settings,
            "warnings": self.warnings,
        }
        if self.lossless is not None:
            result["lossless"] = asdict(self.lossless)
        return result


def _rounded(ratios: dict[str, float] | None) -> dict[str, float] | None:
    return ratios and {name: round(ratio, 4) for name, ratio in ratios.items()}


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 3) if seconds else 0.0
