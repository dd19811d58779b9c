"""One step of speculative decoding, top to bottom. Plain decoding is the step of a bare root.

Nothing here waits for the device: shapes do not depend on what is accepted, and lengths are
tensors. So the host can launch a step before it has read the tokens of the one before, and on a
GPU each part is one CUDA graph (``graphs.py``).
"""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.engine.accept import Path, accept
from specx.engine.cost import TreePlan
from specx.engine.drafter import Drafter, Reshapable
from specx.engine.graphs import Runner
from specx.engine.sampling import Sampler
from specx.engine.stopwatch import Row, Stopwatch
from specx.engine.target import Target
from specx.kernels.trees import TokenTree


@dataclass
class DecodingState:
    """Everything that lives and dies with one document.

    ``root`` int64 [1]: the last emitted token, which the target has not read yet. ``emitted``
    int64 [1]: tokens of the output so far, the root among them. Both are changed in place.
    ``steps``: how many this drafter has done.
    """

    target: Target
    drafter: Drafter
    sampler: Sampler
    watch: Stopwatch
    run: Runner
    root: Tensor
    emitted: Tensor
    steps: int = 0

    def draft_with(self, drafter: Drafter) -> None:
        """Go on with another drafter."""
        self.drafter, self.steps = drafter, 0
        self.run.forget()

    def reshape(self, plan: TreePlan) -> None:
        """Go on with other trees of the same drafter."""
        assert isinstance(self.drafter, Reshapable)
        self.drafter.reshape(plan)
        self.run.forget()


@dataclass(frozen=True)
class Emission:
    """What a launched step will have emitted once the device is done.

    ``packed`` int64 [1 + 2 (levels + 1) + T]: how many tokens, the tokens, the rows that chose
    them, and the depths of all rows; behind them the drafter's note, if it has one.
    ``drafted``: nodes of the tree; ``levels``: how many it has. ``mode``: the drafter's.
    """

    packed: Tensor
    drafted: int
    levels: int
    mode: str


def decoding_step(state: DecodingState, row: Row) -> Generator[None, None, Emission]:
    """Draft a tree, verify it in one forward pass, keep what the target agrees with.

    ``row``: begun for the parts of this step. Yields between two parts: to record one takes a
    while, and something else may have happened by then.
    """
    drafter, part, run = state.drafter, row.part, state.run
    mode = drafter.mode()
    if drafter.retrieval_due(state.steps):
        with part("retrieval"):
            run("retrieval", lambda: drafter.retrieve(state.target))
        yield
    with part("drafting"):
        if drafter.is_behind():
            run("catching up", drafter.catch_up)
        if drafter.levels:
            tree = run(f"drafting {mode}", lambda: drafter.grow(state.root))
        else:  # no work for the device, and an empty graph takes time as well
            tree = drafter.grow(state.root)
    yield
    with part("verification"):
        path = run(f"verification {mode}", lambda: verify(state, tree))
    yield
    with part("keep"):
        packed = run(f"keep {mode}", lambda: keep(state, tree, path))
    state.steps += 1
    return Emission(packed, tree.nodes, tree.levels, mode)


def verify(state: DecodingState, tree: TokenTree) -> Path:
    """Where the target's own choices lead through the tree."""
    logits = state.target.score(tree)
    return accept(tree, state.sampler.choose(logits, state.emitted, tree.depths))


def keep(state: DecodingState, tree: TokenTree, path: Path) -> Tensor:
    """Make the path the end of the text, for target and draft; the emission, packed."""
    state.target.keep(path)
    state.drafter.commit(path)
    state.root.copy_(path.last)
    state.emitted += path.count
    note = state.drafter.note()
    noted = [] if note is None else [note]
    return torch.cat([path.count[None], path.tokens, path.rows, tree.depths, *noted])
