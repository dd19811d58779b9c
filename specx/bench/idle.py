"""How much of a step the GPU waits, from a profile of steps that are graphs already."""

from collections.abc import Iterable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from specx.engine.decode import decode
from specx.engine.methods import Pair
from specx.profile import Profile
from specx.records import Method, Step

SKIPPED = 10  # steps before those that are looked at
WATCHED = 15


def idle_share(
    pair: Pair, settings: Profile, method: Method, prompt: Sequence[int]
) -> float | None:
    """The share of time without a kernel or a copy, over steps that are settled; None when the
    text is too short for a look."""
    steps = 0
    profiler = profile(activities=[ProfilerActivity.CUDA])
    for event in decode(pair, settings, method, prompt):
        steps += isinstance(event, Step)
        if steps == SKIPPED and isinstance(event, Step):
            profiler.start()
        if steps == SKIPPED + WATCHED:
            torch.cuda.synchronize()
            profiler.stop()
            break
    else:
        if steps >= SKIPPED:
            profiler.stop()
        return None
    return gaps(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )


def gaps(busy: Iterable[tuple[float, float]]) -> float:
    """The share of the time between the first beginning and the last end that no interval covers.

    ``busy``: beginnings and ends in any unit, which may overlap.
    """
    spans = sorted(busy)
    reached = first = spans[0][0]
    idle = 0.0
    for begin, end in spans:
        idle += max(0.0, begin - reached)
        reached = max(reached, end)
    return idle / (reached - first)
