"""Measuring the costs of the parts of a step, on the caches of the document at hand."""

from collections.abc import Callable
from functools import partial

import torch

from specx.decoding.cost import Costs, Curve
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.step import DecodingState
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.tuner import WIDTHS
from specx.models.loaded import LoadedModel
from specx.ops.trees import TokenTree

# On a CPU a pass over more rows takes longer, and measuring it, too. On a GPU only the sizes of
# kernels count, which change at 16 rows; they are compiled for each width, and none is left to do.
VERIFIED_ROWS = {"cpu": (1, 9), "cuda": (1, 17, 64)}
# With experts, the first rows cost most: each reads experts that no other has read.
ROWS_WITH_EXPERTS = {"cpu": (1, 2, 4, 9), "cuda": (1, 2, 4, 8, 17, 64)}
DRAFTED_ROWS = {"cpu": (1, 9), "cuda": WIDTHS}
MEASURED = 2  # times; the shortest one counts
LEVELS = 8  # times for a level: in a tree it follows others, and what it needs is in cache


def measure_costs(state: DecodingState, plain: float) -> Costs:
    """Measure with the caches as they are, before the first tree; ``plain``: of a plain step.

    Nothing is emitted and the text in no cache changes; the kept queries of the retrieval layer are
    overwritten.
    """
    drafter, kind = state.drafter, state.end.root.device.type
    assert isinstance(drafter, ModelDrafter), "there is no kind of others to choose trees for"
    one = state.stopwatch.latest("verification", MEASURED)
    draft = {
        rows: _seconds(state, partial(drafter.draft_level, rows), LEVELS)
        for rows in DRAFTED_ROWS[kind]
    }
    verify = {
        # Plain steps, if any were taken, were verifications of one row.
        rows: min(one) if one and rows == 1 else _seconds(state, partial(_verify_rows, state, rows))
        for rows in (ROWS_WITH_EXPERTS if has_experts(state.target.model) else VERIFIED_ROWS)[kind]
    }
    retrieval = 0.0
    if drafter.retrieve_every is not None:
        retrieval = _seconds(state, partial(drafter.retrieve, state.target))
    return Costs(plain, Curve(draft), Curve(verify), retrieval, stops=kind == "cpu")


def has_experts(model: LoadedModel) -> bool:
    """Return True for a model in which rows choose the weights that they read."""
    spec = model.decoder_spec
    return spec is not None and any(layer.mlp.experts is not None for layer in spec.layers)


def _seconds(state: DecodingState, stage: Callable[[], object], times: int = MEASURED) -> float:
    """Time a stage as part of a step."""
    stopwatch, runner, settled = Stopwatch(state.end.root.device), state.runner.another(), 0
    while settled < times:  # not while it is recorded
        with stopwatch.part("host"):
            runner.run(stage)
        settled += runner.settled()
    stopwatch.finish()
    return min(stopwatch.samples["host"][-times:])


def _verify_rows(state: DecodingState, rows: int) -> None:
    """Verify a root with ``rows - 1`` children, and keep nothing.

    The children are other tokens, as they are in a tree: with the same ones, rows would choose the
    same experts.
    """
    zeros = state.end.root.new_zeros(rows)
    depths = (torch.arange(rows, device=zeros.device) > 0).long()
    valid = torch.ones_like(zeros, dtype=torch.bool)
    vocabulary = state.target.model.vocab_size
    others = torch.arange(rows, device=zeros.device) * (vocabulary // rows)
    tokens = (state.end.root + others) % vocabulary
    tree = TokenTree(tokens, zeros, depths, valid, levels=min(1, rows - 1))
    state.stages().verify(tree)
