"""A method whose draft is dialled, and the calibration of its dial on generated documents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256

import torch

from specx.bench.cases import Case, generated_documents, make_cases
from specx.bench.dial import REFERENCE, AgreementRecord, Dial, uniforms
from specx.bench.forcing import force
from specx.bench.methods import METHODS
from specx.bench.methods.dialled_draft import (
    DialledDrafter,
    DialledHeadDrafter,
    Dialling,
    NetStopwatch,
)
from specx.bench.methods.engine import Engine
from specx.bench.runs import Measurement, Setting, read_together, run_drafter
from specx.bench.workbench import Workbench
from specx.decoding.cost import WIDTHS, Curve
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import DraftPlan
from specx.decoding.runner import Runner, runner_for
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.workspace import AHEAD
from specx.errors import UsageError
from specx.models.head_files import LoadedHead
from specx.ops.trees import MAX_ROWS, Path
from specx.profile import Profile, Settings, TreeSettings

SEED = 5000  # of the documents for calibration, which are none of those that are measured
DOCUMENTS = 3  # for calibration, per document measured at a length
DRAWS = 8  # numbers for each place of a known output
TIMED = 8  # times that a level is timed on a GPU; the shortest counts


@dataclass(frozen=True)
class Dialled:
    """A method with a dialled draft, under its own name.

    ``method``: a method that drafts only with a model; ``tree``: the tree used instead of the
    method's; ``below``: as in the profile's ``fallback``; ``own``: on a GPU, the seconds that the
    dial adds to a level, by the number of its nodes. Facts of a run: ``nodes``, ``depth`` and
    ``width`` of the last tree, and ``dialling_ms`` per step, which no time includes.
    """

    name: str
    method: Engine
    dial: Dial
    tree: TreeSettings | None = None
    below: float | None = None
    own: Curve | None = None

    @property
    def about(self) -> str:
        return f"{self.method.about}, its agreement dialled"

    def check(self, profile: Profile) -> None:
        self.method.check(profile)

    def run(self, setting: Setting, case: Case) -> Measurement:
        settings, pair = self.settings(setting), setting.pair
        dialling = self.dialling(setting, case)
        watch = NetStopwatch(pair.target.device, dialling)

        def make(max_tokens: int) -> DialledDrafter:
            return dialled_drafter(settings, pair, max_tokens, dialling)

        run = run_drafter(self.name, make, setting, settings, case, watch)
        tree = dialling.tree
        facts = {"nodes": tree.nodes, "depth": tree.depth, "width": tree.continued}
        own_ms = 1e3 * watch.own / max(1, run.steps)
        decode_s = max(0.0, run.decode_s - watch.own)
        return replace(run, decode_s=decode_s, facts={**facts, "dialling_ms": own_ms})

    def settings(self, setting: Setting) -> Settings:
        """Return the settings that this method runs with."""
        profile = setting.profile.changed(fallback={"below": self.below})
        profile = profile if self.tree is None else profile.changed(tree=self.tree)
        return self.method.settings(replace(setting, profile=profile))

    def dialling(self, setting: Setting, case: Case) -> Dialling:
        """Return the dial for a document; its draws are the same for all trees and methods."""
        allowed = setting.pair.draft_allowed
        assert allowed is not None, "Engine.check refuses profiles without a draft"
        document = sha256(repr(case.ids).encode()).hexdigest()
        return Dialling(self.name, self.dial, allowed, document, self.own)


def dialled_drafter(
    settings: Settings, pair: Pair, max_tokens: int, dialling: Dialling
) -> DialledDrafter:
    """Make the dialled form of the draft of a pair, a model or a head."""
    assert pair.draft is not None, "Engine.check refuses profiles without a draft"
    assert pair.draft_allowed is not None
    kind = DialledHeadDrafter if isinstance(pair.draft, LoadedHead) else DialledDrafter
    plan = DraftPlan.of(settings)
    return kind(pair.draft, pair.draft_allowed, plan, max_tokens, dialling)


@dataclass(frozen=True)
class Calibration:
    """The base draft of a method on generated documents of one length.

    ``outputs``: the target's outputs, a run for each of ``cases``; ``record``: the record of the
    draft's own first choices; ``own``: as in ``Dialled``.
    """

    method: Engine
    cases: tuple[Case, ...]
    outputs: tuple[Measurement, ...]
    record: AgreementRecord
    own: Curve | None

    def dials(self, settings: Sequence[float]) -> dict[float, Dial]:
        """Return the dial of each setting that the base draft reaches."""
        found = {}
        for setting in settings:
            with suppress(UsageError):
                found[setting] = self.record.dial(setting)
        return found

    def runs(self, dials: dict[float, Dial]) -> Iterator[Measurement]:
        """Yield the outputs, with the dials and their underlying data as facts."""
        known = {
            f"{setting:g}": {**asdict(dial), "length": self.record.acceptance_length(dial)}
            for setting, dial in dials.items()
        }
        for index, run in enumerate(self.outputs):
            facts = {"agreement": self.record.agreement, "dials": known}
            facts["right"] = _marks(self.record.right[index])
            if self.record.chains:
                facts["chains"] = [_marks(chain) for chain in self.record.chains[index]]
            yield replace(run, method="calibration", decode_s=0.0, facts=facts)


def _marks(right: Sequence[bool]) -> str:
    return "".join("01"[place] for place in right)


def calibrate(
    bench: Workbench, method: Engine, length: int, task: str, documents: int | None = None
) -> Calibration:
    """Measure the agreement of the draft of ``method`` with the target on generated documents.

    The target decodes plainly, and the draft predicts each token (``forcing.py``).
    """
    documents = documents or DOCUMENTS * bench.most
    texts = generated_documents(documents, length, SEED)
    cases = make_cases(bench.kind(task), task, texts, length, documents)
    outputs, right, chains = [], [], []
    is_head = isinstance(bench.pair.draft, LoadedHead)
    for case in cases:
        bench.announce("calibrating", case)
        setting = bench.setting(case)
        run = METHODS["plain"].run(setting, case)
        setting = replace(setting, profile=setting.profile.changed(tree=REFERENCE))
        places = list(force(method, setting, case.ids, run.output, REFERENCE.depth))
        outputs.append(run)
        right.append(tuple(place.draft_is_right for place in places))
        chains.append(tuple((place.draft_is_right, *place.ahead) for place in places))
    own = added_cost(method, Setting(bench.pair, bench.profile), cases[0]) if bench.on_gpu else None
    record = record_of(right, chains if is_head else ())
    return Calibration(method, tuple(cases), tuple(outputs), record, own)


def record_of(
    right: Sequence[tuple[bool, ...]], chains: Sequence[tuple[tuple[bool, ...], ...]] = ()
) -> AgreementRecord:
    """Return a record with random numbers for each output; ``chains``: only for a head."""
    numbers = tuple(
        tuple(tuple(uniforms(SEED, f"{i} {row}", range(len(output)))) for row in range(DRAWS))
        for i, output in enumerate(right)
    )
    return AgreementRecord(tuple(right), numbers, tuple(chains))


@torch.inference_mode()
def added_cost(
    method: Engine, setting: Setting, case: Case, widths: Sequence[int] = WIDTHS
) -> Curve:
    """Measure the seconds that a dial adds to a level of a draft, by the number of nodes."""
    dialled = Dialled("", method, Dial(0.5, 1.0), REFERENCE)
    settings = dialled.settings(setting)
    pair, longest = setting.pair, len(case.ids) + AHEAD
    dialling = dialled.dialling(setting, case)
    dialling.own = Curve({1: 0.0})
    drafter = dialled_drafter(settings, pair, longest, dialling)
    target = setting.target(pair.target, longest + MAX_ROWS, drafter.retrieval_layer)
    text = torch.tensor(case.ids, device=pair.target.device)
    read_together(target, drafter, text[:-1])
    drafter.commit(Path.of(text[-1:]))
    runner = runner_for(
        pair.target.device, graphs=settings.graphs, runs_natively=pair.runs_natively
    )
    return Curve(
        {
            rows: max(
                0.0,
                _seconds(runner, pair.target.device, partial(drafter.dialled_level, rows))
                - _seconds(runner, pair.target.device, partial(drafter.draft_level, rows)),
            )
            for rows in dict.fromkeys((*widths, REFERENCE.nodes))
        }
    )


def _seconds(runner: Runner, device: torch.device, level: Callable[[], None]) -> float:
    """Return the minimum time of a level, once it is recorded."""
    stopwatch, settled = Stopwatch(device), 0
    while settled < TIMED:
        with stopwatch.part("host"):
            runner.run(level)
        settled += runner.settled()
    stopwatch.finish()
    return min(stopwatch.samples["host"][-TIMED:])
