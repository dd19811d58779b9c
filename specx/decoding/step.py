"""One step of speculative decoding, top to bottom. Plain decoding is a step with only a root.

Nothing here waits for the device: shapes do not depend on acceptance, and lengths are tensors. So
the host can launch a step before it has read the previous step's tokens.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from specx.decoding.cost import TreePlan
from specx.decoding.drafter import Drafter, NoDrafter
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.pending import HostCopy
from specx.decoding.runner import Runner
from specx.decoding.sampling import Sampler
from specx.decoding.stages import Stages, TextEnd
from specx.decoding.stopwatch import Laps, Stopwatch
from specx.decoding.target import Target
from specx.decoding.tuner import StepPlan
from specx.ops.trees import Path, TokenTree

LOADING = 0.08  # seconds that recording a pass takes only where kernels are loaded


@dataclass
class DecodingState:
    """All objects that decode one document. ``steps``: the steps taken with the current drafter.

    ``plain``: the drafter without drafts, used first. A drafter's recorded stages stay valid for
    later use, in this document or the next.
    """

    target: Target
    sampler: Sampler
    stopwatch: Stopwatch
    runner: Runner
    end: TextEnd
    plain: NoDrafter = field(default_factory=NoDrafter)
    drafter: Drafter = field(init=False)
    steps: int = field(init=False, default=0)
    _runners: dict[Drafter, Runner] = field(init=False, default_factory=dict)
    _stages: dict[tuple[Drafter, object, bool], Stages] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.draft_with(self.plain)

    def begin(self, *, kept: bool = False) -> None:
        """Clear the text, for another one; ``kept``: as in ``Target``.

        If kernels were loaded while plain steps were recorded, these are recorded again, so that
        the time of a recording is known.
        """
        if self._runners[self.plain].longest > LOADING:
            self._forget(self.plain)
        self.target.begin(kept=kept)
        self.end.begin()
        self.draft_with(self.plain)

    def choose_first(self, logits: Tensor, prompt: Tensor) -> HostCopy:
        """Choose the first token after the prompt int64 [L] from logits [1, V]; return its copy."""
        chosen = self.sampler.first(logits, prompt)
        self.end.root.copy_(Path.of(chosen).readable().last)
        return HostCopy(chosen)

    def draft_with(self, drafter: Drafter) -> None:
        """Switch to another drafter."""
        self.drafter, self.steps = drafter, 0
        self.runner = self._runner_of(drafter)
        self.runner.forget(drafter.retrieve)  # it depends on how the text is cut

    def _runner_of(self, drafter: Drafter) -> Runner:
        if drafter not in self._runners:
            self._runners[drafter] = self.runner.another()
        return self._runners[drafter]

    def stages(self, drafter: Drafter | None = None, *, alone: bool = False) -> Stages:
        """Return a drafter's stages, the same objects for the same layout.

        None: those of the current drafter. ``alone``: with trees that lookup drafts alone.
        """
        drafter = drafter or self.drafter
        key = drafter, drafter.layout, alone
        if key not in self._stages:
            self._stages[key] = Stages(self.target, drafter, self.sampler, self.end, alone)
        return self._stages[key]

    def prepare(self, drafter: Drafter, plan: TreePlan | None) -> Iterator[None]:
        """Record a drafter's stages for the trees of ``plan``; None: for its own trees.

        The device may be busy, and steps may be launched meanwhile: recording runs no work. Yields
        between two parts; does nothing if stages cannot be recorded ahead.
        """
        runner = self._runner_of(drafter)
        with drafter.laid_out(plan):
            stages = self.stages(drafter)
            tree = runner.prepare(stages.draft, self.end.root)
        if tree is None:
            return
        yield
        path = yield from self._prepare_verification(runner, stages, tree)
        with drafter.laid_out(plan):
            runner.prepare(stages.keep, tree, path)
        yield

    def would_record(self, drafter: Drafter, plan: TreePlan | None) -> bool:
        """Return True if ``prepare`` has anything to record."""
        with drafter.laid_out(plan):
            return self._runner_of(drafter).would_record(self.stages(drafter).keep)

    def _prepare_verification(
        self, runner: Runner, stages: Stages, tree: TokenTree
    ) -> Generator[None, None, Path]:
        """Record the verification of a tree, and return its future path."""
        if self.sampler.penalizes:
            logits = runner.prepare(stages.read, tree)
            assert logits is not None
            yield
            path = runner.prepare(stages.follow, tree, logits)
        else:
            path = runner.prepare(stages.verify, tree)
        assert path is not None
        return path

    def reshape(self, plan: TreePlan) -> None:
        """Switch to other trees of the same drafter."""
        assert isinstance(self.drafter, ModelDrafter)
        self.drafter.reshape(plan)
        if self.drafter.forget_layouts():
            steps = self.steps
            self._forget(self.drafter)
            self.draft_with(self.drafter)
            self.steps = steps

    def fall_back(self) -> None:
        """Decode plainly to the end. The memory for drafting is freed."""
        for drafter in [each for each in self._runners if each is not self.plain]:
            self._forget(drafter)
        if not self.runner.records:  # what was recorded of plain steps goes on keeping queries
            self.target.stop_retrieval()
        self.draft_with(self.plain)

    def _forget(self, drafter: Drafter) -> None:
        """Free the stages of a drafter, and their recordings."""
        del self._runners[drafter]
        kept = {key: stages for key, stages in self._stages.items() if key[0] is not drafter}
        self._stages = kept


@dataclass(frozen=True, kw_only=True)
class LaunchedStep:
    """A step in flight: its emission is being copied to the host.

    ``nodes``, ``levels``: the size of its tree; ``copy``: the copy of its emission; ``settled``: as
    in ``Runner``.
    """

    plan: StepPlan
    nodes: int
    levels: int
    copy: HostCopy
    laps: Laps
    settled: bool


def launch_step(state: DecodingState, plan: StepPlan) -> Generator[None, None, LaunchedStep]:
    """Draft a tree, verify it in one forward pass, and keep the tokens that the target chose.

    Yields between parts, because recording a part takes a while, and events may have occurred in
    the meantime.
    """
    run, root, laps = state.runner.run, state.end.root, state.stopwatch.laps()
    stages = state.stages(alone=plan.strategy == "lookup")
    if plan.retrieve:
        run(state.drafter.retrieve, state.target)
        laps.end("retrieval")
        yield
    if plan.catch_up:
        run(state.drafter.catch_up)
    # Without levels there is no work for the device, and an empty graph takes time as well.
    tree = run(stages.draft, root) if state.drafter.levels else stages.draft(root)
    laps.end("drafting")
    yield
    if state.sampler.penalizes:
        logits = run(stages.read, tree)
        laps.end("verification")
        yield
        path = run(stages.follow, tree, logits)
        laps.end("penalties")
    else:
        path = run(stages.verify, tree)
        laps.end("verification")
    yield
    emission = run(stages.keep, tree, path)
    laps.end("keep")
    state.steps += 1
    return LaunchedStep(
        plan=plan,
        nodes=tree.nodes,
        levels=tree.levels,
        copy=HostCopy(emission),
        laps=laps,
        settled=state.runner.settled(),
    )
