"""Decoding a document: from a prompt to events, until the text ends."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from specx.decoding import methods
from specx.decoding.controller import Budget, Controller, strategy_for
from specx.decoding.cost import TreePlan
from specx.decoding.drafter import Drafter, Reshapable
from specx.decoding.fallback import PlainTimes
from specx.decoding.measured_costs import known_of
from specx.decoding.methods import Pair
from specx.decoding.pending import HostCopy, PendingEvents
from specx.decoding.pipeline import Pipeline
from specx.decoding.runner import runner_for
from specx.decoding.sampling import Sampler
from specx.decoding.sources import SourceSettings, room_for
from specx.decoding.stages import TextEnd
from specx.decoding.step import DecodingState
from specx.decoding.stopwatch import Stopwatch, has_passed, seconds_between
from specx.decoding.target import Target
from specx.decoding.tree_choice import TreeChoice
from specx.decoding.workspace import Place, Shelf, Workspace, WorkspaceKind, capacity_for
from specx.errors import DocumentError
from specx.models.load import LoadedModel
from specx.ops.chunks import Passages
from specx.ops.trees import MAX_ROWS, Path
from specx.profile import Settings
from specx.records import (
    Attention,
    Event,
    FellBack,
    Finished,
    FinishReason,
    PrefillProgress,
    Step,
    Stop,
)

T = TypeVar("T")
BUSY = 3  # steps that a device is given to do while others are recorded


def decode(
    pair: Pair,
    settings: Settings,
    prompt: Sequence[int],
    stopwatch: Stopwatch | None = None,
    *,
    stop: Stop | None = None,
    sources: SourceSettings | None = None,
    shelf: Shelf | None = None,
) -> Iterator[Event]:
    """Write what the target writes after ``prompt`` (token ids).

    ``stopwatch``: one of the caller's, to see every part of every step. ``stop``: ends the text
    early, for one call only. ``sources``: passages of the prompt, for which Finished tells how much
    each token attended to them. ``shelf``: where the document before left caches and recorded
    stages, and this one leaves its own.

    Yields PrefillProgress, then Steps (the first holds the one token that prefill decides), with
    FellBack at most once among them, and Finished at the end. Nothing of a text outlives the
    iterator: two documents in a row give what each gives alone.

    Raises, at the call, DocumentError when the prompt leaves no room for output in the target's
    window; later ModelError when the target computes logits that are not finite, for a token that
    would be emitted.
    """
    pair = pair.for_text(len(prompt) + max(0, settings.limit_behind(len(prompt))))
    make = partial(methods.make_drafter, settings, pair)
    place = None if shelf is None else Place(shelf, WorkspaceKind.of(pair, settings, sources))
    return decode_with(
        pair, settings, make, prompt, stopwatch=stopwatch, stop=stop, sources=sources, place=place
    )


def decode_with(
    pair: Pair,
    settings: Settings,
    make_drafter: Callable[[int], Drafter],
    prompt: Sequence[int],
    *,
    make_target: Callable[[LoadedModel, int, int | None], Target] = Target,
    stopwatch: Stopwatch | None = None,
    stop: Stop | None = None,
    sources: SourceSettings | None = None,
    place: Place | None = None,
) -> Iterator[Event]:
    """Decode with a drafter and a target of the caller's, as ``decode`` does.

    ``make_drafter`` gets the most tokens that prompt and output can have together; ``make_target``
    what ``Target`` gets. ``place``: has nothing but what these two made.
    """
    limit = settings.limit_behind(len(prompt))
    if not prompt or limit < 1:
        raise DocumentError(
            f"the prompt has {len(prompt)} tokens and the window is {settings.window}"
        )
    capacity, device = capacity_for(len(prompt) + limit), pair.target.device
    workspace = place.take(capacity) if place else None
    if workspace is None:
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what graphs that are gone had for themselves is free then
        drafter = make_drafter(capacity - MAX_ROWS)
        target = make_target(pair.target, capacity, drafter.retrieval_layer)
        if drafter.features is not None:
            target.keep_features(drafter.features)
        if sources is not None:
            target.keep_sources(sources.layer, room_for(settings.limit))
        workspace = _make_workspace(pair, settings, target, drafter, capacity)
    workspace.state.stopwatch = stopwatch or Stopwatch(device)
    at_limit: FinishReason = "window" if len(prompt) + limit == settings.window else "length"
    name = f"{pair.target.source} in {str(pair.target.dtype).removeprefix('torch.')}"
    budget = Budget(pair.target.eos_token_ids, limit, at_limit, stop, target=name)
    strategy = strategy_for(settings, workspace.drafter, pair.known)
    controller = Controller(budget, strategy, len(prompt), _plain_times(pair, settings))
    decoding = _Decoding(workspace, controller, place, sources.passages if sources else None)
    return decoding.events(list(prompt))


def _make_workspace(
    pair: Pair, settings: Settings, target: Target, drafter: Drafter, capacity: int
) -> Workspace:
    device = pair.target.device
    state = DecodingState(
        target=target,
        # Its stream of random numbers and its text reach as far as the cache.
        sampler=Sampler(settings.sampling, pair.target_allowed, capacity, pair.target.ops),
        stopwatch=Stopwatch(device),
        runner=runner_for(device, graphs=settings.graphs, is_ours=pair.is_ours),
        end=TextEnd.on(device),
    )
    return Workspace(capacity, state, drafter)


def _plain_times(pair: Pair, settings: Settings) -> PlainTimes | None:
    """Return what is known of plain tokens; None: to be timed in each text.

    A CPU is faster or slower from one text to the next.
    """
    if pair.target.device.type != "cuda":
        return None
    sampling = settings.sampling
    kind = settings.graphs, sampling.temperature > 0, sampling.penalizes
    return pair.plain_times.setdefault(kind, PlainTimes())


class _Decoding:
    """One document on its way from the prompt to the end of the text.

    The host goes ahead of a GPU: while that still reads the prompt, the first steps are prepared.
    """

    def __init__(
        self,
        workspace: Workspace,
        controller: Controller,
        place: Place | None,
        passages: Passages | None,
    ) -> None:
        """``place``: for the workspace when the text has ended."""
        self.workspace: Workspace | None = workspace  # a fallback frees what drafting needed
        self.state, self.place, self.passages = workspace.state, place, passages
        self.controller, self.budget = controller, controller.budget
        self.steps = Pipeline(self.state)
        budget = controller.budget
        self.limit = budget.left
        # Not a method of this object: in a cycle the caches would outlive the document.
        self.pending = PendingEvents(self.state.end.root.device, is_over=lambda: budget.is_spent)
        self.tokens = 0  # of the prompt
        self.written: list[int] = []  # tokens of the output, until the drafter reads them

    @torch.inference_mode()
    def events(self, prompt: list[int]) -> Iterator[Event]:
        """Prefill, then steps until the budget has a reason to stop."""
        ids = self._ids(prompt)
        self.tokens = len(prompt)
        first = yield from self._read_prompt(ids)
        yield from self._time_plain_steps(first)
        yield from self._begin_drafting(ids)
        yield from self._take_steps()
        self.steps.drop()
        attended = self._attended()
        stopwatch, ended = self.state.stopwatch, self.steps.ended
        timings = stopwatch.finish()
        speedup = self.controller.speedup(stopwatch.samples)
        decoding = seconds_between(first.done, ended) if ended else 0.0
        if self.place and self.workspace:
            self.place.put(self.workspace)
        assert self.budget.reason is not None
        yield Finished(self.budget.reason, timings, speedup, decoding, attended)

    def _attended(self) -> Attention:
        """Return the attention of the emitted tokens to the passages, if somebody wants it."""
        if self.passages is None:
            return ()
        with self.state.stopwatch.part("sources"):
            emitted = self.limit - self.budget.left
            rows: Attention = self.state.target.attention_to(self.passages, emitted).tolist()
        return rows

    def _read_prompt(self, ids: Tensor) -> Generator[Event, None, HostCopy]:
        """Read the prompt and choose the first token; return its copy on the host."""
        assert self.workspace is not None
        state, drafter, logits = self.state, self.workspace.drafter, None
        for item in self._timed(state.target.prefill(ids), "target_prefill"):
            if isinstance(item, PrefillProgress):
                if drafter.features is not None:
                    with state.stopwatch.part("draft_prefill"):
                        drafter.follow(ids, item.done, state.target)
                self.pending.add(item)
                yield from self.pending.happened()
            else:
                logits = item
        assert logits is not None
        root = state.end.root
        chosen = state.sampler.first(logits, ids)
        root.copy_(Path.of(chosen).readable().last)
        first = HostCopy(chosen)
        self.pending.add(partial(_first_step, first, self.written, self.budget))
        yield from self.pending.all() if self.budget.left == 1 else self.pending.happened()
        return first

    def _time_plain_steps(self, first: HostCopy) -> Iterator[Event]:
        """Measure the cost of a plain token on tokens that are needed anyway."""
        if not self.controller.needs_plain:
            return
        yield from self.pending.all(meanwhile=self._launch_plain_steps(first))
        while self.controller.needs_plain:
            step, settled = self.steps.next()
            self.controller.note_plain(step, settled=settled)
            self.written += step.tokens
            yield self.budget.spend(step)
        for step in self.budget.spend_all(self.steps.drain()):
            self.written += step.tokens
            yield step

    def _launch_plain_steps(self, first: HostCopy) -> Iterator[None]:
        """Launch the first steps; until the first token is there, record those of the drafter."""
        yield from self.steps.launch()
        assert self.workspace is not None
        drafter, strategy, plan = self.workspace.drafter, self.controller.strategy, None
        if isinstance(strategy, TreeChoice) and isinstance(drafter, Reshapable):
            plan = strategy.known_plan(self.tokens)
            if plan is None:
                return
        parts = self.state.prepare(drafter, plan)
        while not has_passed(first.done) and next(parts, "done") != "done":
            yield

    def _begin_drafting(self, ids: Tensor) -> Iterator[Event]:
        """Have the drafter read the text, and launch the first steps with it."""
        if self.budget.is_spent:
            return
        assert self.workspace is not None
        state, drafter = self.state, self.workspace.drafter
        strategy = self.controller.strategy
        text = torch.cat([ids, self._ids(self.written[:-1])])
        for progress in self._timed(drafter.prefill(text, state.target), "draft_prefill"):
            self.pending.add(progress)
            yield from self.pending.happened()
        drafter.commit(Path.of(state.end.root))
        state.draft_with(drafter)
        if isinstance(strategy, TreeChoice) and isinstance(drafter, Reshapable):
            if strategy.known_plan(self.tokens) is None:  # measuring takes a while
                yield from self.pending.all()
            state.reshape(strategy.start(known_of(strategy, state, drafter, self.tokens)))
        del drafter  # so that a fallback frees its memory
        yield from self.pending.all(meanwhile=self.steps.launch())

    def _take_steps(self) -> Iterator[Event]:
        """Take steps until the text ends, as the controller decides."""
        state, controller, budget = self.state, self.controller, self.budget
        while not budget.is_spent:
            step, settled = self.steps.next()
            yield budget.spend(step)
            verdict = controller.decide(
                self.steps.read - 1, step, settled=settled, verification=self.steps.verification
            )
            if verdict is None:
                continue
            if isinstance(verdict, TreePlan):
                yield from self._prepare(verdict)
            yield from budget.spend_all(self.steps.drain())
            if budget.is_spent:
                return
            if isinstance(verdict, TreePlan):
                state.reshape(verdict)
            elif isinstance(verdict, FellBack):
                self._fall_back()
                yield verdict

    def _prepare(self, plan: TreePlan) -> Iterator[Event]:
        """Have stages for other trees recorded while the device has steps of the present ones."""
        parts = self.state.prepare(self.state.drafter, plan)
        while not self.budget.is_spent and self.state.runner.records:
            self.steps.fill(BUSY)
            if next(parts, "done") == "done":
                return
            yield self.budget.spend(self.steps.next()[0])

    def _fall_back(self) -> None:
        """Decode plainly to the end; what drafting needed stays for the next document only."""
        if self.place:
            self.state.draft_with(self.state.plain)
        else:
            self.workspace = None
            self.state.fall_back()

    def _ids(self, text: list[int]) -> Tensor:
        return torch.tensor(text, dtype=torch.int64, device=self.state.end.root.device)

    def _timed(self, parts: Iterator[T], name: str) -> Iterator[T]:
        """Yield the same items, the time that the work for them takes counted as ``name``."""
        while True:
            with self.state.stopwatch.part(name):
                item = next(parts, None)
            if item is None:
                return
            yield item


def _first_step(first: HostCopy, written: list[int], budget: Budget) -> Step:
    tokens = tuple(first.read())
    written += tokens
    return budget.spend(Step(tokens, drafted=0, accepted=0, seconds=0.0, passes=0))
