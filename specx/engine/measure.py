"""Measuring what the parts of a step cost, on the caches of the document at hand."""

from collections.abc import Callable
from functools import partial

import torch

from specx.engine.cost import Costs, Curve
from specx.engine.drafter import Reshapable
from specx.engine.step import DecodingState, verify
from specx.engine.stopwatch import Stopwatch
from specx.kernels.trees import TokenTree

# On a CPU a pass over more rows takes longer, and measuring it, too; on a GPU only the kernels'
# sizes count, which change at 16 rows.
VERIFIED_ROWS = {"cpu": (1, 5, 17), "cuda": (1, 17, 64)}
DRAFTED_ROWS = {"cpu": (1, 5, 17), "cuda": (1, 17, 33)}
MEASURED = 2  # times; the shorter one counts


def measure_costs(state: DecodingState, drafter: Reshapable, plain: float) -> Costs:
    """Costs with the caches as they are, before the first tree; ``plain``: seconds of a plain step.

    Nothing is emitted and no cache changes; what the target's watched layer asked is overwritten.
    """
    kind = state.root.device.type
    return Costs(
        plain,
        draft=Curve({n: _seconds(state, partial(drafter.rehearse, n)) for n in DRAFTED_ROWS[kind]}),
        verify=Curve({n: _seconds(state, partial(_verify, state, n)) for n in VERIFIED_ROWS[kind]}),
        retrieval=_seconds(state, partial(drafter.retrieve, state.target))
        if drafter.retrieves
        else 0.0,
    )


def known_costs(
    known: dict[int, Costs], tokens: int, plain: float, measure: Callable[[], Costs]
) -> Costs:
    """Costs for a text of ``tokens`` tokens, from ``known`` or measured now and put there.

    ``known``: by length class; texts of one class differ by less than a factor of 2.
    """
    length_class = tokens.bit_length()
    if length_class not in known:
        known[length_class] = measure()
    return known[length_class].at(plain)


def _seconds(state: DecodingState, work: Callable[[], object]) -> float:
    """How long ``work`` takes as part of a step."""
    watch, run, settled = Stopwatch(state.root.device), state.run.another(), 0
    while settled < MEASURED:  # not while it is recorded
        with watch.part("host"):
            run("host", work)
        settled += run.settled()
    watch.finish()
    return min(watch.samples["host"][-MEASURED:])


def _verify(state: DecodingState, rows: int) -> None:
    """Verify a root with ``rows - 1`` children, and keep nothing."""
    zeros = state.root.new_zeros(rows)
    depths = (torch.arange(rows, device=zeros.device) > 0).long()
    valid = torch.ones_like(zeros, dtype=torch.bool)
    tree = TokenTree(state.root.expand(rows), zeros, depths, valid, levels=min(1, rows - 1))
    verify(state, tree)
    state.target.cache.drop_scratch()
