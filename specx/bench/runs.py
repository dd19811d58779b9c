"""One method on one case, once: what was written and what it cost."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from specx.bench.cases import Case
from specx.bench.masked import MaskedOps
from specx.decoding.decode import decode
from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.target import Target
from specx.errors import UsageError
from specx.models.head_files import LoadedHead
from specx.models.loaded import LoadedModel
from specx.profile import Profile, Settings
from specx.records import Finished, PrefillProgress, Step, Tally

PREFILLS = ("target_prefill", "draft_prefill")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A raw measurement, as it is in the JSON of a report.

    ``output``: token ids, the first ``prefilled`` of them decided by prefill. ``decode_s``: seconds
    from when those were there to the last token, so prefill of the target is not in it;
    ``prefill_s``: by model, as far as it was read in this run. ``acceptance_length``: as defined in
    ``records.py``. ``parts_ms``: medians of each part of a step; ``total_s``: seconds of each part
    in the whole run, as in ``Timings``. ``facts``: what an experiment measures beside.
    ``read_s``: seconds in which the target read what methods share of the prompt, 0 where this run
    read all of it. ``taken``: share of the time of its repetition, all methods of it, that other
    processes took (``LoadMonitor.taken``). Both None where unknown, as in older files.
    """

    method: str
    case: str
    length: int
    task: str
    repeat: int
    prompt_tokens: int
    output: tuple[int, ...]
    decode_s: float
    prefill_s: dict[str, float] = field(default_factory=dict)
    acceptance_length: float = 1.0
    accepted_per_step: float = 0.0
    acceptance_by_position: dict[str, list[float]] = field(default_factory=dict)
    steps: int = 0
    parts_ms: dict[str, float] = field(default_factory=dict)
    total_s: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    prefilled: int = 1
    read_s: float | None = None
    taken: float | None = None

    @classmethod
    def of(cls, method: str, case: Case, output: Sequence[int], **fields: Any) -> "Run":
        """Return a run of a method on a case; without ``fields`` nothing was timed."""
        given = {"repeat": 0, "decode_s": 0.0} | fields
        return cls(
            method=method,
            case=case.name,
            length=case.length,
            task=case.task,
            prompt_tokens=len(case.ids),
            output=tuple(output),
            **given,
        )

    @property
    def tokens_per_second(self) -> float:
        """Of decoding, without the tokens that prefill decides; 0 when there is no other."""
        return (len(self.output) - self.prefilled) / self.decode_s if self.decode_s > 0 else 0.0

    @property
    def end_to_end(self) -> float:
        """Tokens per second from the token ids of the prompt to the last token: prefill of target
        and draft, and decoding; 0 where it is unknown how long the prompt took."""
        if self.read_s is None:
            return 0.0
        seconds = self.read_s + sum(self.prefill_s.values()) + self.decode_s
        return len(self.output) / seconds if seconds > 0 else 0.0


def run_from_raw(raw: Mapping[str, Any]) -> Run:
    """Read a run as it is in JSON. Raises UsageError for one whose output was left out."""
    if "output" not in raw:
        raise UsageError("a run is without its output, so nothing can be concluded from it again")
    names = [field.name for field in fields(Run) if field.name in raw]
    return Run(**{name: raw[name] for name in names} | {"output": tuple(raw["output"])})


@dataclass(frozen=True)
class Setting:
    """Models and profile of one measurement. ``read``: the target's keys and values of the prompt,
    where methods share them (``read_beginning``); ``read_s``: seconds that this took."""

    pair: Pair
    profile: Profile
    repeat: int = 0
    read: Tensor | None = None
    read_s: float = 0.0

    @property
    def shared_s(self) -> float:
        """Seconds of reading that a run does not repeat."""
        return self.read_s if self._shares else 0.0

    @property
    def _shares(self) -> bool:
        # A head reads the prompt behind the target.
        return self.read is not None and not isinstance(self.pair.draft, LoadedHead)

    def target(self, model: LoadedModel, capacity: int, retrieval_layer: int | None) -> Target:
        """Make the target of a document; it has read what methods share.

        At least one token of the prompt is left to read.
        """
        target = Target(model, capacity, retrieval_layer)
        # A weight of 0 does not silence a NaN.
        if isinstance(model.ops, MaskedOps) and "tree" in model.ops.phases:
            for storage in target.cache.storages:
                storage.zero_()
        if self.read is not None and self._shares:
            count = self.read.shape[3]
            target.cache.storage[:, :, :, :count] = self.read
            target.cache.commit(count)
        return target


class BenchMethod(Protocol):
    """One way to write the target's output."""

    @property
    def name(self) -> str:
        """As it is written after ``--methods``."""

    @property
    def about(self) -> str:
        """One line for tables and for ``--help``."""

    def check(self, profile: Profile) -> None:
        """Raise UsageError when the profile cannot run this method."""

    def run(self, setting: Setting, case: Case) -> Run:
        """Write the output of ``case``."""


def draft_model(pair: Pair, name: str) -> tuple[LoadedModel, Tensor]:
    """Return the draft model of a pair and the ids that it may write, bool [V].

    Raises UsageError, about the method ``name``, for a head, and where there is no draft.
    """
    if pair.draft is None or pair.draft_allowed is None:
        raise UsageError(f"{name} needs a draft model, and the profile has none")
    if isinstance(pair.draft, LoadedHead):
        raise UsageError(f"{name} needs a draft model, and {pair.draft.source} is a head")
    return pair.draft, pair.draft_allowed


def run_drafter(
    name: str,
    make: Callable[[int], Drafter],
    setting: Setting,
    settings: Settings,
    case: Case,
    watch: Stopwatch | None = None,
) -> Run:
    """Decode with a drafter of our engine, on an idle machine; ``watch``: the caller's."""
    watch, tally = watch or Stopwatch(setting.pair.target.device), Tally()
    output: list[int] = []
    prefill: dict[str, float] = {}
    total: dict[str, float] = {}
    decoding, chunks = 0.0, 0
    follows = False

    def made(max_tokens: int) -> Drafter:
        nonlocal follows
        drafter = make(max_tokens)
        follows = drafter.features is not None
        return drafter

    events = decode(
        setting.pair,
        settings,
        case.ids,
        watch,
        make_drafter=made,
        make_target=setting.target,
    )
    for event in events:
        if isinstance(event, Step):
            output += event.tokens
            tally.add(event)
        elif isinstance(event, PrefillProgress):
            chunks += event.model == "target"
        elif isinstance(event, Finished):
            total, decoding = vars(event.timings), event.decoding
            prefill = {part: total[part] for part in PREFILLS}
    # The draft reads the prompt after the first token, which is no decoding; a head before it.
    late = watch.samples.get("draft_prefill", [])[chunks if follows else 0 :]
    return Run.of(
        name,
        case,
        output,
        repeat=setting.repeat,
        decode_s=max(0.0, decoding - sum(late)),
        prefill_s=prefill,
        acceptance_length=tally.acceptance_length,
        accepted_per_step=tally.accepted_per_step,
        acceptance_by_position=tally.acceptance_by_position(),
        steps=tally.steps,
        parts_ms=_medians(watch),
        total_s=total,
        read_s=setting.shared_s,
    )


def _medians(watch: Stopwatch) -> dict[str, float]:
    """Return the median ms of each part of a step."""
    return {
        part: 1e3 * statistics.median(samples)
        for part, samples in watch.samples.items()
        if part not in PREFILLS
    }


# ---------------------------------------------------------------- the prompt


@torch.inference_mode()
def read_beginning(pair: Pair, prompt: Sequence[int]) -> Tensor:
    """Return the target's keys and values [layers, 2, Hkv, L - 1, D] of all of a prompt of L
    tokens but the last."""
    target = Target(pair.target, len(prompt), None)
    ids = torch.tensor(prompt[:-1], dtype=torch.int64, device=pair.target.device)
    for _ in target.prefill(ids):
        pass
    return target.cache.storage[:, :, :, : len(ids)]


def read_together(target: Target, drafter: Drafter, prompt: Tensor) -> None:
    """Have target and drafter read a prompt int64 [L], as decoding does before the first tree."""
    if drafter.features is not None:
        target.keep_features(drafter.features)
    for progress, _ in target.prefill(prompt):
        if drafter.features is not None:
            drafter.follow(prompt, progress.done, target)
    for _ in drafter.prefill(prompt, target):
        pass
