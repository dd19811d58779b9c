"""One step of speculative decoding, top to bottom. Plain decoding is the step of a bare root.

Nothing here waits for the device: shapes do not depend on what is accepted, and lengths are
tensors. So the host can launch a step before it has read the tokens of the one before.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from specx.decoding.cost import TreePlan
from specx.decoding.drafter import Drafter, DraftMode, NoDrafter, Reshapable
from specx.decoding.emission import Emission
from specx.decoding.runner import Runner
from specx.decoding.sampling import Sampler
from specx.decoding.stages import ModeStages, Stages, TextEnd, Verify
from specx.decoding.stopwatch import Laps, Stopwatch
from specx.decoding.target import Target
from specx.ops.trees import Path, TokenTree


@dataclass
class DecodingState:
    """Everything at work on one document. ``steps``: done by this drafter.

    ``plain``: drafts nothing, and is at work first. What was recorded of a drafter's stages holds
    when it is at work again, in this document or the next.
    """

    target: Target
    sampler: Sampler
    stopwatch: Stopwatch
    runner: Runner
    end: TextEnd
    plain: NoDrafter = field(default_factory=NoDrafter)
    drafter: Drafter = field(init=False)
    steps: int = field(init=False, default=0)
    stages: Stages = field(init=False)
    _known: dict[Drafter, tuple[Stages, Runner]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.draft_with(self.plain)

    def begin(self) -> None:
        """Forget all of the text, for another one."""
        self.target.begin()
        self.end.begin()
        self.draft_with(self.plain)

    def draft_with(self, drafter: Drafter) -> None:
        """Go on with another drafter."""
        self.drafter, self.steps = drafter, 0
        self.stages, self.runner = self._stages_of(drafter)
        self.runner.forget(self.stages.retrieve)  # it depends on how the text is cut

    def _stages_of(self, drafter: Drafter) -> tuple[Stages, Runner]:
        if drafter not in self._known:
            stages = Stages(self.target, drafter, self.sampler, self.end)
            self._known[drafter] = stages, self.runner.another()
        return self._known[drafter]

    def prepare(self, drafter: Drafter, plan: TreePlan | None) -> Iterator[None]:
        """Record the stages of a drafter with the trees of ``plan``, None: with its own.

        The device has time for what it has to do, and steps may be launched in between: nothing
        of what is recorded is done. Yields between two parts; where nothing can be recorded ahead,
        does nothing.
        """
        stages, runner = self._stages_of(drafter)
        with drafter.laid_out(plan):
            mode = stages.of(DraftMode.MODEL)
            tree = runner.prepare(mode.draft, self.end.root)
        if tree is None:
            return
        yield
        path = yield from _prepare_verification(runner, mode, tree)
        with drafter.laid_out(plan):
            runner.prepare(mode.keep, tree, path)
        yield

    def reshape(self, plan: TreePlan) -> None:
        """Go on with other trees of the same drafter."""
        assert isinstance(self.drafter, Reshapable)
        self.drafter.reshape(plan)
        if self.drafter.forget_layouts():
            steps = self.steps
            del self._known[self.drafter]
            self.draft_with(self.drafter)
            self.steps = steps

    def fall_back(self) -> None:
        """Decode plainly to the end. What drafting needed is freed."""
        self._known = {self.plain: self._known[self.plain]}
        if not self.runner.records:  # what was recorded of plain steps goes on keeping queries
            self.target.stop_retrieval()
        self.draft_with(self.plain)


def _prepare_verification(
    runner: Runner, mode: ModeStages, tree: TokenTree
) -> Generator[None, None, Path]:
    """Record the verification of a mode, and return where its path will lie."""
    if isinstance(mode.verify, Verify):
        path = runner.prepare(mode.verify, tree)
    else:
        read, penalize = mode.verify
        logits = runner.prepare(read, tree)
        assert logits is not None
        yield
        path = runner.prepare(penalize, tree, logits)
    assert path is not None
    return path


@dataclass(frozen=True)
class LaunchedStep:
    """A step whose ``emission`` will be there once the device is done; ``nodes``: drafted."""

    emission: Emission
    mode: DraftMode
    nodes: int


def launch_step(state: DecodingState, laps: Laps) -> Generator[None, None, LaunchedStep]:
    """Draft a tree, verify it in one forward pass, keep what the target agrees with.

    ``laps``: begun for the parts of this step. Yields between two parts: to record one takes a
    while, and something else may have happened by then.
    """
    run, stages, root = state.runner.run, state.stages, state.end.root
    plan = state.drafter.plan(state.steps)
    mode = stages.of(plan.mode)
    if plan.retrieve:
        run(stages.retrieve)
        laps.set_aside("draft_prefill", state.drafter.prefill_seconds())
        laps.end("retrieval")
        yield
    if plan.catch_up:
        run(stages.catch_up)
    # Without levels there is no work for the device, and an empty graph takes time as well.
    tree = run(mode.draft, root) if state.drafter.levels else mode.draft.work(root)
    laps.end("drafting")
    yield
    if isinstance(mode.verify, Verify):
        path = run(mode.verify, tree)
        laps.end("verification")
    else:
        read, penalize = mode.verify
        logits = run(read, tree)
        laps.end("verification")
        yield
        path = run(penalize, tree, logits)
        laps.end("penalties")
    yield
    emission = run(mode.keep, tree, path)
    laps.end("keep")
    state.steps += 1
    return LaunchedStep(emission, plan.mode, tree.nodes)
