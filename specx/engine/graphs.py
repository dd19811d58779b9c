"""Running the parts of a step: eagerly, or as CUDA graphs.

A step launches hundreds of kernels, and on a modern GPU the launches take several times as long as
the kernels. A CUDA graph records them once and replays them with one launch. It replays on the same
memory, so everything that lives longer than a part has to stay where it is: parts change lengths,
caches and the last token in place.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import torch

from specx.kernels import fused

T = TypeVar("T")

# Bytes of the device's memory for a part to be recorded: what it computes on the way. Most take
# some MB; sampling from 64 rows of 150,000 float64 probabilities, about half a GB.
# On a device that never has as much free, recording waits for what it is still doing.
ROOM = 2 << 30


class Runner(Protocol):
    """Runs the parts of a step, each under its name."""

    @property
    def records(self) -> bool:
        """Whether a part that runs for the first time is work for the host, before the device."""

    def settled(self) -> bool:
        """Whether all that ran since this was last asked ran as fast as it will later."""

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        """Do ``work``, the same as under this name before; its result."""

    def forget(self) -> None:
        """What the names stand for changes."""

    def another(self) -> "Runner":
        """One of the same kind that has run nothing yet."""


class Eagerly:
    """Just does it."""

    records = False

    def settled(self) -> bool:
        return True

    def __call__(self, name: str, work: Callable[[], T]) -> T:  # noqa: ARG002
        return work()

    def forget(self) -> None:
        pass

    def another(self) -> "Eagerly":
        return Eagerly()


@dataclass
class _Part:
    calls: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    result: Any = None


@dataclass
class Graphs:
    """Records each part and replays it from then on.

    Recording takes the host as long as running eagerly, several times what a replay takes.
    ``eager_calls``: of a part before it is recorded; 0 suits parts that need nothing at first use
    but their kernels, which can be loaded while a graph is recorded. Other layers may do more when
    they first run: what torch compiles tries kernels out, which cannot be recorded.

    The results of a part are overwritten by its next replay.
    """

    eager_calls: int
    records: ClassVar[bool] = True
    _parts: dict[str, _Part] = field(default_factory=dict)
    _slow: bool = False

    def settled(self) -> bool:
        settled, self._slow = not self._slow, False
        return settled

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        part = self._parts.setdefault(name, _Part())
        part.calls += 1
        if part.calls <= self.eager_calls:
            self._slow = True
            return work()
        if part.graph is None:
            self._slow = True
            part.graph, part.result = _recorded(work)
        part.graph.replay()
        result: T = part.result
        return result

    def forget(self) -> None:
        self._parts = {}

    def another(self) -> "Graphs":
        return Graphs(self.eager_calls)


def _recorded(work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of ``work``, which is not done, and what it will leave its result in.

    Does not wait for the device, which ``torch.cuda.graph`` does: it may have work for a while.
    """
    if torch.cuda.mem_get_info()[0] < ROOM:
        torch.cuda.empty_cache()  # waits; while a graph is recorded it is too late for it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_recording_stream(torch.cuda.current_device())):
        # Modes other than the relaxed one forbid loading kernels.
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            result = work()
        finally:
            graph.capture_end()
    return graph, result


@cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """Nothing can be recorded on the default stream. Libraries keep room for each stream that they
    have worked on, so there is one."""
    return torch.cuda.Stream(device)


def runner(device: torch.device, *, fused_layers: bool, graphs: bool = True) -> Runner:
    """The faster one for the device, unless ``graphs`` are not wanted. Without Triton a step on a
    GPU asks the host for lengths, and what waits cannot be recorded.

    ``fused_layers``: those of all models at work are (``models.fused_layers``), and the device has
    done something else before.
    """
    if graphs and device.type == "cuda" and fused.IS_AVAILABLE:
        return Graphs(eager_calls=0 if fused_layers else 1)
    return Eagerly()
