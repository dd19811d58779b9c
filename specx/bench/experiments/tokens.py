"""Where a draft agrees with its target: hard and easy tokens, and along the output (Figure 3)."""

from collections.abc import Iterator, Sequence
from statistics import mean

import torch

from specx.bench.cases import Case
from specx.bench.experiments.experiment import Experiment
from specx.bench.forcing import DraftingMethod, Expectation, force, model_drafting
from specx.bench.grouping import by, gathered
from specx.bench.lengths import label
from specx.bench.methods import METHODS
from specx.bench.report.findings import Figure, Findings, Series, Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench

HARD = 0.1  # share of the tokens, by the target's entropy
BIN = 16  # output positions that are one point of the figure
COLUMNS = (
    "method",
    "input",
    "tokens",
    "acceptance of hard tokens",
    "acceptance of easy tokens",
    "total variation",
    "KL divergence, nats",
)
DEFINED = (
    "The target's own output is fed to target and draft, token by token. With p the target's "
    "distribution and q the draft's in one place, a token is accepted if argmax q is the target's "
    "token; entropy is −Σ p ln p, and the "
    f"{HARD:.0%} of all tokens of a length with the highest are hard, the others easy; total "
    "variation is ½ Σ |p − q|, from 0 (the same) to 1; the KL divergence is Σ p ln (p / q)."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = model_drafting(bench.methods, Setting(bench.pair, bench.profile))
    for task in bench.tasks:
        for length in bench.lengths:
            for case in bench.cases(length, task):
                setting = bench.setting(case)
                output = METHODS["plain"].run(setting, case).output
                for method in methods:
                    bench.listener.phase(f"{method.name}: {case.name}, {label(length)} tokens")
                    run = _compare(method, setting, case, output)
                    bench.listener.ran(run)
                    yield run


def _compare(method: DraftingMethod, setting: Setting, case: Case, output: tuple[int, ...]) -> Run:
    facts: dict[str, list[float]] = {"accepted": [], "entropy": [], "variation": [], "kl": []}
    for expected in force(method, setting, case.ids, output):
        facts["accepted"].append(expected.draft_is_right)
        facts["entropy"].append(entropy(expected))
        facts["variation"].append(total_variation(expected))
        facts["kl"].append(kl_divergence(expected))
    return Run(
        method=method.name,
        case=case.name,
        length=case.length,
        task=case.task,
        repeat=setting.repeat,
        prompt_tokens=len(case.ids),
        output=output,
        decode_s=0.0,
        facts=facts,
    )


def entropy(expected: Expectation) -> float:
    """Of the target's distribution, in nats."""
    return float(torch.special.entr(expected.target.exp()).sum())


def total_variation(expected: Expectation) -> float:
    return float((expected.target.exp() - expected.draft.exp()).abs().sum() / 2)


def kl_divergence(expected: Expectation) -> float:
    """Of the target's distribution from the draft's, in nats."""
    p = expected.target.exp()
    return float((p * (expected.target - expected.draft))[p > 0].sum())


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], [DEFINED]
    for task, of_task in by(runs, "task").items():
        rows = []
        for length, group in sorted(by(of_task, "length").items()):
            limit = hard_from(group)
            rows += [_row(method, own, limit) for method, own in by(group, "method").items()]
            sentences.append(_lowest(task, length, group))
        tables.append(Table(f"Hard and easy tokens, {task}", COLUMNS, tuple(rows)))
        longest = max(run.length for run in of_task)
        figures.append(_figure(task, [run for run in of_task if run.length == longest]))
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def hard_from(runs: Sequence[Run]) -> float:
    """The entropy from which on a token is among the hard ones. All methods had the same tokens."""
    first = next(iter(by(runs, "method").values()))
    entropies = sorted(gathered(first, "entropy"), reverse=True)
    return entropies[max(0, round(HARD * len(entropies)) - 1)]


def _row(method: str, runs: Sequence[Run], limit: float) -> tuple[str | float | None, ...]:
    hard: list[float] = []
    easy: list[float] = []
    for entropy, accepted in zip(
        gathered(runs, "entropy"), gathered(runs, "accepted"), strict=True
    ):
        (hard if entropy >= limit else easy).append(accepted)
    return (
        method,
        label(runs[0].length),
        len(hard) + len(easy),
        mean(hard) if hard else None,
        mean(easy) if easy else None,
        mean(gathered(runs, "variation")),
        mean(gathered(runs, "kl")),
    )


def _figure(task: str, runs: Sequence[Run]) -> Figure:
    lines = []
    for method, own in by(runs, "method").items():
        points = along(own)
        lines.append(Series(method, tuple(points), tuple(points.values())))
    return Figure(
        f"divergence-{task}",
        f"Divergence of draft and target along the output, {task}, {label(runs[0].length)} tokens",
        "output position",
        "total variation",
        tuple(lines),
    )


def along(runs: Sequence[Run]) -> dict[int, float]:
    """Mean total variation by output position, ``BIN`` positions together: {first: mean}."""
    bins: dict[int, list[float]] = {}
    for run in runs:
        for place, variation in enumerate(run.facts["variation"], start=1):
            bins.setdefault(place // BIN * BIN, []).append(variation)
    return {first: mean(values) for first, values in sorted(bins.items())}


def _lowest(task: str, length: int, runs: Sequence[Run]) -> str:
    mean_of = {
        method: mean(gathered(own, "variation")) for method, own in by(runs, "method").items()
    }
    best, *others = sorted(mean_of, key=lambda method: mean_of[method])
    rest = "".join(f", {mean_of[method]:.2f} under {method}" for method in others)
    return (
        f"{task.capitalize()} at {label(length)} tokens: the draft is nearest to the target under "
        f"{best}, with a mean total variation of {mean_of[best]:.2f}{rest}."
    )


EXPERIMENT = Experiment(
    "tokens",
    "Hard and easy tokens, and divergence along the output",
    "where the draft agrees with the target (the paper's Figure 3)",
    measure,
    conclude,
)
