"""Launching steps and reading what they emitted, on a GPU one step behind."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from specx.engine.drafter import Outcome
from specx.engine.step import DecodingState, Emission, decoding_step
from specx.engine.stopwatch import Moment, Row, seconds_between
from specx.engine.underway import Landing
from specx.records import Step


@dataclass(frozen=True)
class _Flight:
    """A launched step and its times; ``settled`` as in ``Runner``."""

    row: Row
    landing: Landing
    emission: Emission
    settled: bool


class Pipeline:
    """The steps of one document, in order.

    A GPU is given the next step before the tokens of the last one are read, so it never waits for
    the host. Whatever is decided from the tokens, such as the end of the text, comes one step
    late; that step is dropped. ``landed``: steps that have been read; ``ended``: when the last of
    them was done.
    """

    def __init__(self, state: DecodingState, ahead: int | None = None) -> None:
        """``ahead``: steps launched before the one that is read next; None: as the device can."""
        self.state = state
        self._ahead = int(state.root.is_cuda) if ahead is None else ahead
        self._flying: deque[_Flight] = deque()
        self.landed = 0
        self.ended: Moment | None = None

    def launch(self) -> Iterator[None]:
        """Launch as many steps as run ahead of the one that is read, where they are recorded first:
        that can be done while the device is still busy. Yields between two parts."""
        while self.state.run.records and len(self._flying) < self._ahead:
            yield from self._launch()

    def next(self) -> tuple[Step, bool]:
        """The next step, and whether its time is what such a step takes (not the first ones)."""
        while len(self._flying) <= self._ahead:
            for _ in self._launch():
                pass
        return self._land()

    def drain(self) -> Iterator[Step]:
        """Steps that have been launched and not read; after the last the drafter may change."""
        while self._flying:
            yield self._land()[0]

    def drop(self) -> None:
        """Forget the steps that have been launched and not read, and what they took."""
        while self._flying:
            self.state.watch.drop(self._flying.popleft().row)

    def _launch(self) -> Iterator[None]:
        row = self.state.watch.row()
        emission = yield from decoding_step(self.state, row)
        landing = Landing(emission.packed)
        self._flying.append(_Flight(row, landing, emission, self.state.run.settled()))

    def _land(self) -> tuple[Step, bool]:
        flight = self._flying.popleft()
        packed, emission = flight.landing.read(), flight.emission
        tokens, places, note = _unpack(packed, emission)
        self.landed += 1
        self.ended = flight.landing.done
        step = Step(
            tokens,
            emission.drafted,
            accepted=len(tokens) - 1,
            seconds=seconds_between(flight.row.began, flight.landing.done),
            levels=emission.levels,
            ranks=places,
        )
        self.state.drafter.learn(Outcome(emission.mode, step, note, flight.settled))
        return step, flight.settled


def _unpack(
    packed: list[int], emission: Emission
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], int | None]:
    """Tokens, places of the accepted drafts, and the drafter's note: of ``Emission.packed``."""
    count, values, most = packed[0], packed[1:], emission.levels + 1
    end = 2 * most + emission.drafted + 1
    tokens, rows, depths = values[:count], values[most : most + count], values[2 * most : end]
    places = ((row, depths[1 : row + 1].count(depths[row])) for row in rows[1:])
    return tuple(tokens), tuple(places), values[end] if len(values) > end else None
