"""Agreement of a draft with its target: hard and easy tokens, and along the output (Figure 3)."""

from collections.abc import Iterator, Sequence
from statistics import mean

import torch

from specx.bench.experiments.experiment import INPUT, METHOD, Columns, Experiment, table
from specx.bench.forcing import Expectation, force
from specx.bench.grouping import Group, groups_of
from specx.bench.methods import METHODS
from specx.bench.methods.engine import model_drafting
from specx.bench.report.findings import Figure, Series, Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench

HARD = 0.1  # share of the tokens, by the target's entropy
BIN = 16  # output positions that are one point of the figure
DEFINED = (
    "The target's own output is fed to target and draft, token by token. With p the target's "
    "distribution and q the draft's in one place, a token is accepted if argmax q is the target's "
    "token; entropy is −Σ p ln p, and the "
    f"{HARD:.0%} of all tokens of a length with the highest are hard, the others easy; total "
    "variation is ½ Σ |p − q|, from 0 (the same) to 1; the KL divergence is Σ p ln (p / q)."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = model_drafting(bench.methods, Setting(bench.pair, bench.profile))
    for case in bench.all_cases():
        setting = bench.setting(case)
        output = METHODS["plain"].run(setting, case).output
        for method in methods:
            bench.announce(method.name, case)
            expected = force(method, setting, case.ids, output)
            run = Run.of(method.name, case, output, facts=divergences(expected))
            bench.listener.ran(run)
            yield run


def divergences(expectations: Iterator[Expectation]) -> dict[str, list[float]]:
    """Compute each measure at every token of an output."""
    facts: dict[str, list[float]] = {"accepted": [], "entropy": [], "variation": [], "kl": []}
    for expected in expectations:
        facts["accepted"].append(expected.draft_is_right)
        facts["entropy"].append(entropy(expected))
        facts["variation"].append(total_variation(expected))
        facts["kl"].append(kl_divergence(expected))
    return facts


def entropy(expected: Expectation) -> float:
    """Return the entropy of the target's distribution, in nats."""
    return float(torch.special.entr(expected.target.exp()).sum())


def total_variation(expected: Expectation) -> float:
    return float((expected.target.exp() - expected.draft.exp()).abs().sum() / 2)


def kl_divergence(expected: Expectation) -> float:
    """Return the divergence of the target's distribution from the draft's, in nats."""
    p = expected.target.exp()
    return float((p * (expected.target - expected.draft))[p > 0].sum())


def hard_from(runs: Sequence[Run]) -> float:
    """Return the entropy from which on a token is among the hard ones. All methods had the same
    tokens."""
    entropies = sorted(groups_of(runs)[0].gathered("entropy"), reverse=True)
    return entropies[max(0, round(HARD * len(entropies)) - 1)]


def accepted(group: Group, *, hard: bool) -> float | None:
    """Return the share of the hard or of the easy tokens that would have been accepted."""
    limit = hard_from(group.peers)
    tokens = zip(group.gathered("entropy"), group.gathered("accepted"), strict=True)
    found = [right for entropy, right in tokens if (entropy >= limit) == hard]
    return mean(found) if found else None


COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens": lambda group: len(group.gathered("entropy")),
    "acceptance of hard tokens": lambda group: accepted(group, hard=True),
    "acceptance of easy tokens": lambda group: accepted(group, hard=False),
    "total variation": lambda group: mean(group.gathered("variation")),
    "KL divergence, nats": lambda group: mean(group.gathered("kl")),
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(runs)
    yield table(f"Hard and easy tokens, {task}", groups, COLUMNS)
    longest = [group for group in groups if group.length == groups[-1].length]
    curves = {group.method: along(group.runs) for group in longest}
    yield Figure(
        f"divergence-{task}",
        f"Divergence of draft and target along the output, {task}, {longest[0].input} tokens",
        "output position",
        "total variation",
        tuple(
            Series(method, tuple(curve), tuple(curve.values())) for method, curve in curves.items()
        ),
    )


def along(runs: Sequence[Run]) -> dict[int, float]:
    """Return the mean total variation by output position, ``BIN`` positions together: {first:
    mean}."""
    bins: dict[int, list[float]] = {}
    for run in runs:
        for place, variation in enumerate(run.facts["variation"], start=1):
            bins.setdefault(place // BIN * BIN, []).append(variation)
    return {first: mean(values) for first, values in sorted(bins.items())}


EXPERIMENT = Experiment(
    name="tokens",
    title="Hard and easy tokens, and divergence along the output",
    about="where the draft agrees with the target (the paper's Figure 3)",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
