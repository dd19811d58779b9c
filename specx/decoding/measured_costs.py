"""Measure the costs of the parts of a step, on the caches of the current document."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from specx.decoding.cost import Costs, Curve
from specx.decoding.drafter import Drafter
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.step import DecodingState
from specx.decoding.stopwatch import Stopwatch
from specx.models.loaded import LoadedModel
from specx.ops.trees import TokenTree

# On a CPU a pass over more rows takes longer, and measuring it, too. On a GPU only the sizes of
# kernels count, which change at 16 rows; a draft's passes are filled up to a multiple of them.
VERIFIED_ROWS = {"cpu": (1, 9), "cuda": (1, 17, 64)}
# With experts, the first rows cost most: each reads experts that no other has read.
ROWS_WITH_EXPERTS = {"cpu": (1, 2, 4, 9), "cuda": (1, 2, 4, 8, 17, 64)}
DRAFTED_ROWS = {"cpu": (1, 9), "cuda": (16, 32)}
MEASURED = 2  # times; the shortest one counts
LEVELS = 4  # times for a level: in a tree it follows others, and what it needs is in cache
ENOUGH = 0.03  # seconds after which nothing is measured again; a first short pass may be cold


def measure_costs(state: DecodingState, drafter: Drafter, begun: Costs) -> Costs:
    """Measure the costs of a pair between two steps. The draft need not have read anything.

    ``begun``: costs estimated from a plain step. No token is emitted and the text does not change.
    A retrieval is timed only if the draft has read the text.
    """
    kind = state.end.root.device.type
    assert isinstance(drafter, ModelDrafter), "there is no kind of others to choose trees for"
    rows_of = (ROWS_WITH_EXPERTS if has_experts(state.target.model) else VERIFIED_ROWS)[kind]
    one = state.stopwatch.latest("verification", MEASURED)
    draft = {
        rows: _seconds(state, partial(drafter.draft_level, rows), LEVELS)
        for rows in DRAFTED_ROWS[kind]
    }
    retrieval = state.target.retrieval
    kept = [] if retrieval is None else [retrieval.queries, retrieval.lse]
    saved = [None if each is None else each.clone() for each in kept]
    verify = {
        # Plain steps, if any were taken, were verifications of one row.
        rows: min(one) if one and rows == 1 else _seconds(state, partial(_verify_rows, state, rows))
        for rows in rows_of
    }
    for each, before in zip(kept, saved, strict=True):
        if each is not None and before is not None:
            each.copy_(before)
    costs = replace(begun, draft=Curve(draft), verify=Curve(verify), stops=kind == "cpu")
    return with_retrieval(costs, state) if state.drafter is drafter else costs


def with_retrieval(costs: Costs, state: DecodingState) -> Costs:
    """Return ``costs`` with a measured retrieval. The current drafter must have read the text."""
    drafter = state.drafter
    if drafter.retrieve_every is None:
        return costs
    return replace(costs, retrieval=_seconds(state, partial(drafter.retrieve, state.target)))


def has_experts(model: LoadedModel) -> bool:
    """Return True for a mixture of experts, in which each row chooses the weights it reads."""
    spec = model.decoder_spec
    return spec is not None and any(layer.mlp.experts is not None for layer in spec.layers)


def _seconds(state: DecodingState, stage: Callable[[], object], times: int = MEASURED) -> float:
    """Time a stage as part of a step."""
    stopwatch, runner, settled = Stopwatch(state.end.root.device), state.runner.another(), 0
    ends = time.perf_counter() + ENOUGH
    while settled < times:  # not while it is recorded
        with stopwatch.part("host"):
            runner.run(stage)
        settled += runner.settled()
        if settled and time.perf_counter() > ends:
            break
    stopwatch.finish()
    return min(stopwatch.samples["host"][-settled:])


def _verify_rows(state: DecodingState, rows: int) -> None:
    """Verify a root with ``rows - 1`` children, and keep nothing.

    The children are different tokens, as in a tree: equal tokens would choose the same experts.
    """
    zeros = state.end.root.new_zeros(rows)
    depths = (torch.arange(rows, device=zeros.device) > 0).long()
    valid = torch.ones_like(zeros, dtype=torch.bool)
    vocabulary = state.target.model.vocab_size
    others = torch.arange(rows, device=zeros.device) * (vocabulary // rows)
    tokens = (state.end.root + others) % vocabulary
    tree = TokenTree(tokens, zeros, depths, valid, levels=min(1, rows - 1))
    state.stages().verify(tree)
