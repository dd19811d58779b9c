"""Launching steps and reading what they emitted, on a GPU one step behind."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specx.decoding.drafter import Outcome
from specx.decoding.step import DecodingState, Emission, decoding_step
from specx.decoding.stopwatch import Moment, mark, now, seconds_between
from specx.records import Step


@dataclass(frozen=True)
class _Flight:
    """A launched step; ``settled`` as in ``Runner``."""

    landing: "_Landing"
    emission: Emission
    settled: bool


class Pipeline:
    """The steps of one document, in order.

    A GPU is given the next step before the tokens of the last one are read, so it never waits for
    the host. Whatever is decided from the tokens, such as the end of the text, comes one step
    late; that step is dropped. ``landed``: steps that have been read.
    """

    def __init__(self, state: DecodingState, ahead: int | None = None) -> None:
        """``ahead``: steps launched before the one that is read next; None: as the device can."""
        self.state = state
        self._ahead = int(state.root.is_cuda) if ahead is None else ahead
        self._flying: deque[_Flight] = deque()
        self.landed = 0

    def next(self) -> tuple[Step, bool]:
        """The next step, and whether its time is what such a step takes (not the first ones)."""
        while len(self._flying) <= self._ahead:
            self._launch()
        return self._land()

    def drain(self) -> list[Step]:
        """Steps that have been launched and not read; after this the drafter may change."""
        return [self._land()[0] for _ in range(len(self._flying))]

    def _launch(self) -> None:
        row = self.state.watch.row()
        on_device = self.state.root.is_cuda
        landing: _Landing = _DeviceLanding(row.began) if on_device else _HostLanding(row.began)
        emission = decoding_step(self.state, row)
        landing.arrive(emission.packed)
        self._flying.append(_Flight(landing, emission, self.state.run.settled()))

    def _land(self) -> tuple[Step, bool]:
        flight = self._flying.popleft()
        packed, seconds = flight.landing.read()
        emission = flight.emission
        tokens, places, note = _unpack(packed, emission)
        self.landed += 1
        step = Step(
            tokens,
            emission.drafted,
            accepted=len(tokens) - 1,
            seconds=seconds,
            levels=emission.levels,
            places=places,
        )
        self.state.drafter.learn(Outcome(emission.mode, step, note, flight.settled))
        return step, flight.settled


class _Landing(Protocol):
    """Brings what a step emitted to the host, packed, and knows how many seconds the step took
    from the moment that it began."""

    def arrive(self, packed: Tensor) -> None: ...

    def read(self) -> tuple[list[int], float]: ...


class _HostLanding:
    def __init__(self, began: Moment) -> None:
        self._began = began

    def arrive(self, packed: Tensor) -> None:
        self._packed = packed.tolist()
        self._seconds = seconds_between(self._began, now(packed.device))

    def read(self) -> tuple[list[int], float]:
        return self._packed, self._seconds


class _DeviceLanding:
    def __init__(self, began: Moment) -> None:
        self._began = began

    def arrive(self, packed: Tensor) -> None:
        self._buffer = torch.empty(len(packed), dtype=packed.dtype, pin_memory=True)
        self._buffer.copy_(packed, non_blocking=True)
        self._done = mark(packed.device)

    def read(self) -> tuple[list[int], float]:
        self._done.synchronize()
        return self._buffer.tolist(), seconds_between(self._began, self._done)


def _unpack(
    packed: list[int], emission: Emission
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], int | None]:
    """Tokens, places of the accepted drafts, and the drafter's note: of ``Emission.packed``."""
    count, values, most = packed[0], packed[1:], emission.levels + 1
    end = 2 * most + emission.drafted + 1
    tokens, rows, depths = values[:count], values[most : most + count], values[2 * most : end]
    places = ((row, depths[1 : row + 1].count(depths[row])) for row in rows[1:])
    return tuple(tokens), tuple(places), values[end] if len(values) > end else None
