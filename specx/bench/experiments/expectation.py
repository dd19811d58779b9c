"""Speed over plain decoding against acceptance length, with a draft whose agreement is dialled."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specx.bench.dial import REFERENCE, SETTINGS, Dial
from specx.bench.experiments.experiment import (
    DECODING,
    INPUT,
    Columns,
    Experiment,
    lines,
    table,
)
from specx.bench.grouping import BASELINE, Group, by, groups_of
from specx.bench.methods import METHODS
from specx.bench.methods.dialled import Calibration, Dialled, calibrate
from specx.bench.methods.engine import Engine
from specx.bench.report.report import Cell, Figure, Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.profile import AutoTree, FallbackSettings

CALIBRATION = "calibration"  # in the place of a method's name
AUTO, CAUTIOUS, FIXED = "auto", "auto, fallback", "reference tree"  # ways to run a setting
DEFINED = (
    "A setting is named by the acceptance length that the draft has in the reference tree "
    f"({REFERENCE.nodes} nodes, {REFERENCE.depth} levels, ten children a node, no lookup) on the "
    "generated documents of the calibration. For each position a rank is drawn, and the draft's "
    "first choice moves there, or is left out; the target decides as usual. What the dial itself "
    "takes is not counted. reference τ is the "
    "acceptance length in the reference tree on the measured documents, τ in the trees that "
    "tree: auto chose, the first ones included; tree is the one in use at the end of the first "
    "run. Another document was written at each setting before, so what the parts of a step cost is "
    "known, and how deep trees should be; later repetitions know it of their own document."
)


def measure(bench: Workbench) -> Iterator[Measurement]:
    base = METHODS["specextend"]
    assert isinstance(base, Engine)
    base.check(bench.profile)
    for task in bench.tasks:
        for length in bench.lengths:
            calibration = calibrate(bench, base, length, task)
            dials = calibration.dials(SETTINGS)
            if not dials:
                share = f"{calibration.record.agreement:.0%}"
                raise UsageError(
                    f"the draft agrees with the target on only {share} of the tokens, so it "
                    "reaches none of the acceptance lengths of this experiment; choose another "
                    "draft"
                )
            yield from calibration.runs(dials)
            yield from _measure_settings(bench, calibration, dials, length, task)


def _measure_settings(
    bench: Workbench, calibration: Calibration, dials: Mapping[float, Dial], length: int, task: str
) -> Iterator[Measurement]:
    """Yield plain decoding and all ways to run each setting, in turn.

    A fixed tree warms up briefly, at one setting. Chosen trees warm up on a whole text at each
    setting, as a job does that has reached its second document.
    """
    ways = [(setting, *way) for setting, dial in dials.items() for way in _ways(bench, dial)]
    named = {
        f"{s:g}, {way}": (s, way, replace(method, own=calibration.own)) for s, way, method in ways
    }
    plain = METHODS[BASELINE]
    methods = [replace(method, name=name) for name, (_, _, method) in named.items()]
    chosen = [method for method in methods if named[method.name][1] in (AUTO, CAUTIOUS)]
    fixed = [m for m in methods if m not in chosen and named[m.name][0] == ways[0][0]]
    before = calibration.cases[0]
    unmeasured = bench.setting(before)
    bench.warm_up([plain, *fixed], unmeasured, before)
    bench.warm_up(chosen, unmeasured, before, whole=True)
    for run in bench.alternate(bench.cases(length, task), [plain, *methods], warm_up=False):
        if run.method == BASELINE:
            yield run
        else:
            setting, way, _ = named[run.method]
            yield replace(run, facts={**run.facts, "setting": setting, "way": way})


def _ways(bench: Workbench, dial: Dial) -> Iterator[tuple[str, Dialled]]:
    """Yield the ways to run a setting: with the chosen tree, and with fixed ones.

    They include the requested methods that are specextend with a tree of their own.
    """
    base = METHODS["specextend"]
    assert isinstance(base, Engine)
    yield AUTO, Dialled(AUTO, base, dial, AutoTree())
    yield CAUTIOUS, Dialled(CAUTIOUS, base, dial, AutoTree(), FallbackSettings().below)
    yield FIXED, Dialled(FIXED, base, dial, REFERENCE)
    for method in bench.methods:
        if isinstance(method, Engine) and method.tree and method.cache == base.cache:
            yield method.name, Dialled(method.name, method, dial)


# ---------------------------------------------------------------- what was found


def describe(task: str, runs: list[Measurement]) -> Iterator[Table | Figure]:
    measured = groups_of(run for run in runs if run.method != CALIBRATION)
    groups = [group for group in measured if group.fact("way") is not None]
    chosen = [group for group in groups if group.fact("way") == AUTO]
    fixed = [group for group in groups if group.fact("way") not in (AUTO, CAUTIOUS)]
    yield table(f"Expectation, {task}", chosen, COLUMNS, baseline=BASELINE, note=DECODING)
    yield Figure(
        f"expectation-{task}",
        f"Speedup over {BASELINE}, {task}",
        "tokens per verification pass",
        "speedup",
        lines(
            sorted(chosen, key=Group.acceptance),
            Group.ratio,
            each=lambda group: group.input,
            along=Group.acceptance,
        ),
        level=1.0,
    )
    yield table(f"Fixed trees, {task}", fixed, FIXED_COLUMNS, baseline=BASELINE, note=DECODING)
    yield _calibration_table(task, runs)


def _in(group: Group, way: str) -> Group:
    """Return the same setting at the same length, run in another way."""
    name = f"{group.fact('setting'):g}, {way}"
    return replace(group, method=name, runs=by(group.peers, "method").get(name, []))


def _reference(group: Group) -> float | None:
    fixed = _in(group, FIXED)
    return fixed.acceptance() if fixed.runs else None


def _plain_speed(group: Group) -> float | None:
    plain = by(group.peers, "method").get(BASELINE)
    return replace(group, runs=plain).speed() if plain else None


def _tree(group: Group) -> str:
    nodes, depth, width = (group.fact(key) for key in ("nodes", "depth", "width"))
    return f"{nodes} nodes, {depth} levels, {width} continued"


def _dialling(group: Group) -> Cell:
    return group.median(lambda run: float(run.facts["dialling_ms"]))


COLUMNS: Columns = {
    "setting": lambda group: f"{group.fact('setting'):g}",
    **INPUT,
    "reference τ": _reference,
    "τ": Group.acceptance,
    "speedup": Group.ratio,
    "lowest": lambda group: min(group.ratios(), default=None),
    "highest": lambda group: max(group.ratios(), default=None),
    "with fallback": lambda group: _in(group, CAUTIOUS).ratio(),
    "tree": _tree,
    "plain, tokens/s": _plain_speed,
    "dial ms per step": _dialling,
    "same output": Group.same_output,
}
FIXED_COLUMNS: Columns = {
    "setting": lambda group: f"{group.fact('setting'):g}",
    **INPUT,
    "way": lambda group: group.fact("way"),
    "tree": _tree,
    "τ": Group.acceptance,
    "speedup": Group.ratio,
    "same output": Group.same_output,
}


def _calibration_table(task: str, runs: list[Measurement]) -> Table:
    """Return the dial of every setting at every length."""
    groups = groups_of(run for run in runs if run.method == CALIBRATION)
    rows = [
        (group.input, len(group.runs), group.fact("agreement"), setting, dial["length"],
         dial["sure"], sum(Dial(dial["sure"], 1.0).ranks))
        for group in groups
        for setting, dial in group.fact("dials").items()
    ]  # fmt: skip
    columns = ("input", "documents", "agreement", "setting", "reference τ", "first", "any rank")
    note = (
        "Agreement: of the base draft's first choice with the target; first, any rank: share of "
        "positions at which the dial leaves it at the first rank, or at any."
    )
    return Table(f"Calibration, {task}", columns, tuple(rows), note=note)


EXPERIMENT = Experiment(
    name="expectation",
    title="What a pair of another acceptance length can expect",
    about="speed at acceptance lengths of 1.5 to 6, with a draft whose agreement is dialled",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
