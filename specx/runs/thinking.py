"""Decoding on behind reasoning that has taken all of its budget."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from specx.prompts.reasoning import Thinking
from specx.records import Event, Finished, Step, Stop


class Start(Protocol):
    """Begin to decode behind a prompt, as ``decode`` does."""

    def __call__(self, prompt: tuple[int, ...], *, stop: Stop | None) -> Iterator[Event]: ...


def decode_thinking(start: Start, prompt: Sequence[int], stop: Stop | None) -> Iterator[Event]:
    """Yield the events of one output, in one piece or, past its budget of reasoning, in two.

    The second piece is decoded behind the prompt, the reasoning and the tags that end it; these
    are a step that took no time. What is written depends on token ids alone, in every method.
    """
    first = yield from _piece(start, tuple(prompt), stop)
    if first is None:
        return
    written, finished = first
    assert isinstance(stop, Thinking)
    closing = stop.close()
    yield Step(closing, drafted=0, accepted=0, seconds=0.0, passes=0)
    for event in start((*prompt, *written, *closing), stop=stop):
        yield _joined(finished, event) if isinstance(event, Finished) else event


def _piece(
    start: Start, prompt: tuple[int, ...], stop: Stop | None
) -> Generator[Event, None, tuple[list[int], Finished] | None]:
    """Yield the events of a piece; return its tokens and end if reasoning took all of its budget,
    and yield that end otherwise."""
    written: list[int] = []
    for event in start(prompt, stop=stop):
        if isinstance(event, Step):
            written += event.tokens
        if isinstance(event, Finished) and isinstance(stop, Thinking) and stop.is_over:
            return written, event
        yield event
    return None


def _joined(first: Finished, last: Finished) -> Finished:
    first.timings.add(last.timings)
    first.speedup.add(last.speedup)
    return replace(
        last,
        timings=first.timings,
        speedup=first.speedup,
        decoding=first.decoding + last.decoding,
    )
