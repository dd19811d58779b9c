"""One step of speculative decoding, top to bottom. Plain decoding is the step of a bare root.

Nothing here waits for the device: shapes do not depend on what is accepted, and lengths are
tensors. So the host can launch a step before it has read the tokens of the one before.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from specx.decoding.cost import TreePlan
from specx.decoding.drafter import Drafter, NoDrafter
from specx.decoding.emission import EmissionLayout
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.pending import HostCopy
from specx.decoding.runner import Runner
from specx.decoding.sampling import Sampler
from specx.decoding.stages import Stages, TextEnd, TreeStages, Verify
from specx.decoding.stopwatch import Laps, Stopwatch
from specx.decoding.target import Target
from specx.decoding.tuner import StepPlan
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

    def choose_first(self, logits: Tensor, prompt: Tensor) -> HostCopy:
        """Choose the token behind the prompt int64 [L] by logits [1, V]; return its copy."""
        chosen = self.sampler.first(logits, prompt)
        self.end.root.copy_(Path.of(chosen).readable().last)
        return HostCopy(chosen)

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
            parts = stages.of()
            tree = runner.prepare(parts.draft, self.end.root)
        if tree is None:
            return
        yield
        path = yield from _prepare_verification(runner, parts, tree)
        with drafter.laid_out(plan):
            runner.prepare(parts.keep, tree, path)
        yield

    def reshape(self, plan: TreePlan) -> None:
        """Go on with other trees of the same drafter."""
        assert isinstance(self.drafter, ModelDrafter)
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
    runner: Runner, parts: TreeStages, tree: TokenTree
) -> Generator[None, None, Path]:
    """Record the verification of a tree, and return where its path will lie."""
    if isinstance(parts.verify, Verify):
        path = runner.prepare(parts.verify, tree)
    else:
        read, penalize = parts.verify
        logits = runner.prepare(read, tree)
        assert logits is not None
        yield
        path = runner.prepare(penalize, tree, logits)
    assert path is not None
    return path


@dataclass(frozen=True, kw_only=True)
class LaunchedStep:
    """A step on the device: what it emits is on its way to the host.

    ``nodes``: drafted; ``copy``: of the emission's buffer, laid out as ``layout`` says;
    ``settled``: as in ``Runner``.
    """

    plan: StepPlan
    nodes: int
    layout: EmissionLayout
    copy: HostCopy
    laps: Laps
    settled: bool


def launch_step(state: DecodingState, plan: StepPlan) -> Generator[None, None, LaunchedStep]:
    """Draft a tree, verify it in one forward pass, keep what the target agrees with.

    Yields between two parts: to record one takes a while, and something else may have happened by
    then.
    """
    run, root, laps = state.runner.run, state.end.root, state.stopwatch.laps()
    parts = state.stages.of(alone=plan.arm == "lookup")
    if plan.retrieve:
        run(state.stages.retrieve)
        laps.set_aside("draft_prefill", state.drafter.prefill_seconds())
        laps.end("retrieval")
        yield
    if plan.catch_up:
        run(state.stages.catch_up)
    # Without levels there is no work for the device, and an empty graph takes time as well.
    tree = run(parts.draft, root) if state.drafter.levels else parts.draft.work(root)
    laps.end("drafting")
    yield
    if isinstance(parts.verify, Verify):
        path = run(parts.verify, tree)
        laps.end("verification")
    else:
        read, penalize = parts.verify
        logits = run(read, tree)
        laps.end("verification")
        yield
        path = run(penalize, tree, logits)
        laps.end("penalties")
    yield
    emission = run(parts.keep, tree, path)
    laps.end("keep")
    state.steps += 1
    return LaunchedStep(
        plan=plan,
        nodes=tree.nodes,
        layout=emission.layout,
        copy=HostCopy(emission.buffer),
        laps=laps,
        settled=state.runner.settled(),
    )
