"""The loop over steps: from a prompt to events, until the text ends."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from specx.engine.accept import Path
from specx.engine.choice import TreeChoice
from specx.engine.cost import TreePlan
from specx.engine.drafter import Drafter, NoDrafter, Reshapable
from specx.engine.fallback import Fallback
from specx.engine.graphs import runner
from specx.engine.measure import known_costs, measure_costs
from specx.engine.methods import Pair, make_drafter
from specx.engine.pace import Pace
from specx.engine.pipeline import Pipeline
from specx.engine.sampling import Sampler
from specx.engine.step import DecodingState
from specx.engine.stopwatch import Stopwatch, seconds_between
from specx.engine.target import Target
from specx.engine.underway import Landing, Underway
from specx.errors import DocumentError
from specx.kernels.trees import MAX_ROWS
from specx.profile import AutoTree, Profile
from specx.records import Event, Finished, FinishReason, Method, PrefillProgress, Speedup, Step

T = TypeVar("T")

AHEAD = 3 * MAX_ROWS  # tokens beyond the last one wanted: a tree, and a step that is dropped


def decode(
    pair: Pair,
    profile: Profile,
    method: Method,
    prompt: Sequence[int],
    watch: Stopwatch | None = None,
) -> Iterator[Event]:
    """Write what the target writes after ``prompt`` (token ids).

    ``watch``: a stopwatch of the caller's, to see every part of every step.

    Yields PrefillProgress, then Steps (the first holds the one token that prefill decides), with
    FellBack at most once among them, and Finished at the end. Nothing outlives the iterator: two
    documents in a row give what each gives alone.

    Raises, at the call, DocumentError when the prompt leaves no room for output in the target's
    window, and UsageError when the profile cannot run the method.
    """
    return decode_with(pair, profile, partial(make_drafter, method, profile, pair), prompt, watch)


def decode_with(
    pair: Pair,
    profile: Profile,
    make: Callable[[int], Drafter],
    prompt: Sequence[int],
    watch: Stopwatch | None = None,
    read: Tensor | None = None,
) -> Iterator[Event]:
    """``decode`` with a drafter of the caller's: ``make`` gets the most tokens that prompt and
    output can have together.

    ``read``: what ``read_beginning`` returned for this prompt, which is then not read again.
    """
    window = context_window(pair, profile)
    room = window - len(prompt)
    if not prompt or room < 1:
        raise DocumentError(f"the prompt has {len(prompt)} tokens and the window is {window}")
    limit = min(profile.output_limit, room)
    longest = len(prompt) + limit
    if pair.target.device.type == "cuda":
        torch.cuda.empty_cache()  # what graphs that are gone had for themselves is free only then
    drafter = make(longest + AHEAD)
    target = Target(pair.target, longest + AHEAD + MAX_ROWS, drafter.watch)
    if read is not None:
        target.restore(read)
    device = pair.target.device
    state = DecodingState(
        target=target,
        drafter=NoDrafter(),  # until the prompt is read and a plain token is timed
        sampler=Sampler(profile.generation, pair.target_allowed, limit + AHEAD),
        watch=watch or Stopwatch(device),
        run=runner(device, graphs=profile.graphs, fused_layers=pair.fused_layers),
        root=torch.zeros(1, dtype=torch.int64, device=device),
        emitted=torch.ones(1, dtype=torch.int64, device=device),
    )
    budget = _Budget(pair.target.eos_token_ids, limit, "window" if limit == room else "length")
    return _events(state, drafter, list(prompt), budget, _judge(pair, profile, drafter))


@torch.inference_mode()
def read_beginning(pair: Pair, prompt: Sequence[int]) -> Tensor:
    """The target's keys and values [layers, 2, Hkv, L - 1, D] of all of a prompt of L tokens but
    the last: many methods can start from them."""
    target = Target(pair.target, len(prompt), watch=None)
    ids = torch.tensor(prompt[:-1], dtype=torch.int64, device=pair.target.device)
    for _ in target.prefill(ids):
        pass
    return target.cache.storage[:, :, :, : len(ids)]


@torch.inference_mode()
def _events(
    state: DecodingState,
    drafter: Drafter,
    prompt: list[int],
    budget: "_Budget",
    judge: Fallback | None,
) -> Iterator[Event]:
    """Prefill, then steps until ``budget`` has a reason to stop.

    The host goes ahead of a GPU: while that still reads the prompt, the first steps are prepared.
    """
    ids, logits = _ids(prompt, state), None
    underway = Underway(state.root.device, over=lambda: budget.reason is not None)
    for item in _timed(state.target.prefill(ids), state, "target_prefill"):
        if isinstance(item, PrefillProgress):
            underway.add(item)
            yield from underway.happened()
        else:
            logits = item
    assert logits is not None
    state.root.copy_(state.sampler.choose(logits, 0, torch.zeros_like(state.root)))
    root, written = Landing(state.root), list[int]()

    def first() -> Step:
        written.extend(root.read())
        return budget.spend(Step((written[0],), drafted=0, accepted=0, seconds=0.0, passes=0))

    underway.add(first)
    yield from underway.all() if budget.left == 1 else underway.happened()

    steps, pace = Pipeline(state), Pace()
    if judge is not None and not budget.reason:
        # What a plain token costs, measured on tokens that are needed anyway.
        yield from underway.all(meanwhile=steps.launch())
        while judge.needs_plain and not budget.reason:
            step, settled = steps.next()
            if settled:
                judge.judge(step)
            written += step.tokens
            yield budget.spend(step)
        for step in _as_far_as(budget, steps.drain()):
            written += step.tokens
            yield step

    if not budget.reason:
        text = torch.cat([ids, _ids(written[:-1], state)])
        for progress in _timed(drafter.prefill(text, state.target), state, "draft_prefill"):
            underway.add(progress)
            yield from underway.happened()
        drafter.commit(Path.of(state.root))
        if isinstance(judge, TreeChoice) and isinstance(drafter, Reshapable):
            drafter.reshape(_first_plan(judge, state, drafter, len(text) + 1))
        state.draft_with(drafter)
        del drafter  # so that a fallback frees its memory
        yield from underway.all(meanwhile=steps.launch())
    drafts = judge
    while not budget.reason:
        step, settled = steps.next()
        yield budget.spend(step)
        if not drafts or not settled:
            continue
        pace.note(steps.landed - 1, step, drafts.modelled(step))
        verdict = drafts.judge(step)
        if verdict and not budget.reason:
            yield from _as_far_as(budget, steps.drain())
            if budget.reason:
                break
            if isinstance(verdict, TreePlan):
                state.reshape(verdict)
                continue
            state.draft_with(NoDrafter())
            state.target.stop_watching()
            drafts = None
            yield verdict
    steps.drop()
    timings = state.watch.finish()
    speedup = Speedup()
    if judge and not judge.needs_plain:
        speedup = pace.speedup(judge.plain_seconds, state.watch.samples)
    decoding = seconds_between(root.done, steps.ended) if steps.ended else 0.0
    yield Finished(budget.reason, timings, speedup, decoding)


def _first_plan(
    choice: TreeChoice, state: DecodingState, drafter: Reshapable, tokens: int
) -> TreePlan:
    """The trees that a draft begins with, behind ``tokens`` tokens."""
    plain = choice.plain_seconds
    measure = partial(measure_costs, state, drafter, plain)
    return choice.start(known_costs(choice.known, tokens, plain, measure))


def _ids(text: list[int], state: DecodingState) -> Tensor:
    return torch.tensor(text, dtype=torch.int64, device=state.root.device)


def context_window(pair: Pair, profile: Profile) -> int:
    """Tokens that prompt and output may have together: the profile's limit or the model's."""
    return min(profile.target.window or pair.target.window, pair.target.window)


@dataclass
class _Budget:
    """How much may still be emitted. ``reason`` says why the text ended, once it has.

    ``at_limit``: the reason to give when ``left`` tokens have been spent.
    """

    end_of_text: frozenset[int]
    left: int
    at_limit: FinishReason
    reason: FinishReason | None = None

    def spend(self, step: Step) -> Step:
        """The step without what lies beyond the end of text or the limit."""
        tokens = step.tokens[: self.left]
        ends = [i for i, token in enumerate(tokens) if token in self.end_of_text]
        if ends:
            tokens, self.reason = tokens[: ends[0] + 1], "end"
        self.left -= len(tokens)
        if self.left == 0 and not self.reason:
            self.reason = self.at_limit
        return replace(step, tokens=tokens, accepted=min(step.accepted, len(tokens)))


def _judge(pair: Pair, profile: Profile, drafter: Drafter) -> Fallback | None:
    """Who watches whether drafting pays, and with ``tree: auto`` how it pays most."""
    below = profile.fallback.below
    if drafter.levels == 0:
        return None
    if isinstance(profile.tree, AutoTree) and isinstance(drafter, Reshapable):
        return TreeChoice(below or 0.0, known=pair.costs.setdefault(drafter.kind, {}))
    return None if below is None else Fallback(below)


def _as_far_as(budget: _Budget, steps: Iterator[Step]) -> Iterator[Step]:
    """The steps until the text ends, without what lies beyond its end."""
    while not budget.reason and (step := next(steps, None)):
        yield budget.spend(step)


def _timed(parts: Iterator[T], state: DecodingState, name: str) -> Iterator[T]:
    """The same items, the time that the work for them takes counted as ``name``."""
    while True:
        with state.watch.part(name):
            item = next(parts, None)
        if item is None:
            return
        yield item
