"""The loop over steps: from a prompt to events, until the text ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from specx.decoding.drafter import NoDrafter
from specx.decoding.fallback import Fallback
from specx.decoding.methods import Pair, make_drafter
from specx.decoding.sampling import Sampler
from specx.decoding.step import DecodingState, decoding_step
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.target import Target
from specx.decoding.tree import MAX_ROWS
from specx.errors import DocumentError
from specx.profile import Profile
from specx.records import Event, FellBack, Finished, FinishReason, Method, PrefillProgress, Step

T = TypeVar("T")


@torch.inference_mode()
def decode(pair: Pair, profile: Profile, method: Method, prompt: Sequence[int]) -> Iterator[Event]:
    """Write what the target writes after ``prompt`` (token ids).

    Yields PrefillProgress, then Steps (the first holds the one token that prefill decides), with
    FellBack at most once among them, and Finished at the end. Nothing outlives the call: two
    documents in a row give what each gives alone.

    Raises DocumentError when the prompt leaves no room for output in the target's window.
    """
    settings = profile.generation
    window = context_window(pair, profile)
    room = window - len(prompt)
    if not prompt or room < 1:
        raise DocumentError(f"the prompt has {len(prompt)} tokens and the window is {window}")
    limit = min(settings.max_new_tokens, room)
    device = pair.target.device
    drafter = make_drafter(method, profile, pair, len(prompt) + limit + MAX_ROWS)
    target = Target(
        pair.target, pair.target_allowed, len(prompt) + limit + 2 * MAX_ROWS, drafter.watch
    )
    sampler = Sampler(settings, device)
    watch = Stopwatch(device)
    ids = torch.tensor(prompt, dtype=torch.int64, device=device)

    logits: Tensor | None = None
    for item in _timed(target.prefill(ids), watch, "target_prefill"):
        if isinstance(item, PrefillProgress):
            yield item
        else:
            logits = item
    assert logits is not None
    first = sampler.choose(logits, torch.zeros_like(ids[:1]))
    text = [*prompt, int(first)]
    state = DecodingState(target, NoDrafter(), sampler, watch, first)
    budget = _Budget(pair.target.eos_token_ids, limit, "window" if limit == room else "length")
    yield budget.spend(Step((text[-1],), drafted=0, accepted=0, seconds=0.0, passes=0))

    fallback = _fallback(method, profile)
    while fallback is not None and fallback.needs_plain and not budget.reason:
        # What a plain token costs, measured on tokens that are needed anyway.
        step = decoding_step(state)
        fallback.judge(step)
        text += step.tokens
        yield budget.spend(step)
    if not budget.reason:
        read = torch.tensor(text[:-1], dtype=torch.int64, device=device)
        yield from _timed(drafter.prefill(read, target), watch, "draft_prefill")
        state.drafter = drafter
        yield from _steps(state, budget, fallback)
    assert budget.reason
    yield Finished(budget.reason, watch.finish())


def context_window(pair: Pair, profile: Profile) -> int:
    """Tokens that prompt and output may have together: the profile's limit or the model's."""
    return min(profile.target.window or pair.target.window, pair.target.window)


def _steps(
    state: DecodingState, budget: "_Budget", fallback: Fallback | None
) -> Iterator[Step | FellBack]:
    while not budget.reason:
        step = decoding_step(state)
        yield budget.spend(step)
        if fallback is not None and (verdict := fallback.judge(step)) and not budget.reason:
            state.drafter, fallback = NoDrafter(), None
            yield verdict


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


def _fallback(method: Method, profile: Profile) -> Fallback | None:
    below = profile.fallback.below
    return None if method == "plain" or below is None else Fallback(below)


def _timed(parts: Iterator[T], watch: Stopwatch, name: str) -> Iterator[T]:
    """The same items, the time to make each of them counted as ``name``."""
    while True:
        with watch.part(name):
            item = next(parts, None)
        if item is None:
            return
        yield item
