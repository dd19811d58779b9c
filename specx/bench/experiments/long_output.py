"""A short input and a long output, which becomes most of what a draft has to remember.

The paper measures this with problems of AIME and a model that reasons. A target that ends sooner is
asked again behind what it has written, until there are ``TOKENS`` tokens of output.
"""

from collections.abc import Iterator
from dataclasses import replace

from specx.bench.cases import Case
from specx.bench.experiments.experiment import DECODING, INPUT, METHOD, Columns, Experiment, table
from specx.bench.grouping import BASELINE, Group, by, groups_of
from specx.bench.methods import find_runnable
from specx.bench.report.report import Figure, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench
from specx.profile import resolve

TOKENS = 2048
COMPARED = (BASELINE, "lookup", "tree", "streaming", "specextend", "specextend+lookup")
SEES_ALL = "tree"
FEWEST = 32  # tokens of a turn
REQUEST = 2  # tokens behind the document with which a digest is asked for
DEFINED = (
    f"A target that ends before {TOKENS:,} tokens of output is asked again behind all that was "
    f"written so far, after a turn of fewer than {FEWEST} tokens with the document once more. The "
    "acceptance length is that of all turns together: decoded tokens over verifications."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = find_runnable(COMPARED, bench.profile)
    room = resolve(bench.profile, "plain", bench.pair.facts).window
    for task in bench.tasks:
        for length in bench.lengths:
            for case in bench.cases(length, task):
                asked = case.ids if task == "instruct" else case.ids[-REQUEST:]
                text, written, turn = case.ids, 0, 0
                while written < TOKENS and len(text) < room:
                    turn += 1
                    now = _turn(case, text, turn)
                    runs = list(bench.alternate([now], methods, warm_up=turn == 1))
                    facts = {"turn": turn, "text": len(text)}
                    yield from (replace(run, facts={**run.facts, **facts}) for run in runs)
                    output = runs[0].output
                    # One that has said all it had to say is given the document once more.
                    again = asked if len(output) >= FEWEST else case.ids
                    text, written = (*text, *output, *again), written + len(output)


def _turn(case: Case, text: tuple[int, ...], turn: int) -> Case:
    """Return the case whose prompt is all of the text so far."""
    document = replace(case.document, name=f"{case.name}, turn {turn}")
    return replace(case, document=document, prompt=replace(case.prompt, token_ids=text))


def acceptance(group: Group) -> float | None:
    """Return decoded tokens per verification of all turns."""
    decoded = sum(len(run.output) - run.prefilled for run in group.runs)
    steps = sum(run.steps for run in group.runs)
    return decoded / steps if steps else None


def over_tree(group: Group) -> float | None:
    """Return how many times as long the acceptance length is as that of a draft that sees all."""
    others = [run for run in group.peers if run.method == SEES_ALL]
    own, other = acceptance(group), acceptance(replace(group, runs=others))
    return own / other if own and other else None


COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "output tokens": lambda group: sum(len(r.output) for r in group.runs if r.repeat == 0),
    "tokens/s": Group.speed,
    f"speedup over {BASELINE}": Group.ratio,
    "acceptance length": acceptance,
    f"over {SEES_ALL}": over_tree,
    "same output": Group.same_output,
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(runs)
    yield table(f"Long output, {task}", groups, COLUMNS, baseline=BASELINE, note=DECODING)
    lines = [
        Series(
            f"{group.method}, {group.input}" if len(by(runs, "length")) > 1 else group.method,
            tuple(run.facts["text"] for run in group.runs),
            tuple(run.acceptance_length for run in group.runs),
        )
        for group in groups
        if group.method != BASELINE
    ]
    yield Figure(
        f"long-output-{task}",
        f"Acceptance length while the text grows, {task}",
        "tokens of the text at the beginning of a turn",
        "tokens per verification pass",
        tuple(lines),
        level=1.0,
    )


EXPERIMENT = Experiment(
    name="long-output",
    title="Short input, long output",
    about="an output of 2K tokens and more, which grows into what a draft chooses from",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
