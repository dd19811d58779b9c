"""Launching steps and reading what they emitted, on a GPU one step behind."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from specx.decoding.drafter import Outcome
from specx.decoding.emission import Emitted
from specx.decoding.pending import HostCopy
from specx.decoding.step import DecodingState, LaunchedStep, launch_step
from specx.decoding.stopwatch import Laps, Moment
from specx.records import Step


@dataclass(frozen=True)
class _InFlight:
    """A launched step, its times, and its emission on the way; ``settled`` as in ``Runner``."""

    laps: Laps
    copy: HostCopy
    step: LaunchedStep
    settled: bool


class Pipeline:
    """The steps of one document, in order.

    A GPU is given the next step before the tokens of the last one are read, so it never waits for
    the host. Whatever is decided from the tokens, such as the end of the text, comes one step
    late; that step is dropped. ``read``: steps that have been read; ``ended``: when the last of
    them was done; ``verification``: the seconds that the target took for it, known on a CPU alone.
    """

    def __init__(self, state: DecodingState, ahead: int | None = None) -> None:
        """``ahead``: steps launched before the one that is read next; None: as the device can."""
        self.state = state
        self._ahead = int(state.end.root.is_cuda) if ahead is None else ahead
        self._in_flight: deque[_InFlight] = deque()
        self.read = 0
        self.ended: Moment | None = None
        self.verification: float | None = None

    def launch(self) -> Iterator[None]:
        """Launch as many steps as run ahead of the one that is read, where they are recorded first.

        That can be done while the device is still busy. Yields between two parts.
        """
        while self.state.runner.records and len(self._in_flight) < self._ahead:
            yield from self._launch()

    def fill(self, steps: int) -> None:
        """Launch steps until ``steps`` of them have not been read, so that the device has work."""
        while len(self._in_flight) < steps:
            for _ in self._launch():
                pass

    def next(self) -> tuple[Step, bool]:
        """Return the next step, and True if its time is what such a step takes (not the first)."""
        while len(self._in_flight) <= self._ahead:
            for _ in self._launch():
                pass
        return self._read()

    def drain(self) -> Iterator[Step]:
        """Yield steps that were launched and not read; after the last the drafter may change."""
        while self._in_flight:
            yield self._read()[0]

    def drop(self) -> None:
        """Forget the steps that were launched and not read, and what they took."""
        while self._in_flight:
            self.state.stopwatch.drop(self._in_flight.popleft().laps)

    def _launch(self) -> Iterator[None]:
        laps = self.state.stopwatch.laps()
        step = yield from launch_step(self.state, laps)
        copy = HostCopy(step.emission.buffer)
        self._in_flight.append(_InFlight(laps, copy, step, self.state.runner.settled()))

    def _read(self) -> tuple[Step, bool]:
        flight = self._in_flight.popleft()
        layout, launched = flight.step.emission.layout, flight.step
        emitted = Emitted.read(layout, flight.copy.read())
        self.read += 1
        self.ended = flight.copy.done
        self.verification = flight.laps.seconds("verification")
        step = Step(
            emitted.tokens,
            launched.nodes,
            accepted=len(emitted.tokens) - 1,
            seconds=flight.laps.until(flight.copy.done),
            levels=layout.levels,
            ranks=emitted.ranks,
        )
        outcome = Outcome(mode=launched.mode, step=step, note=emitted.note, settled=flight.settled)
        self.state.drafter.learn(outcome)
        return step, flight.settled
