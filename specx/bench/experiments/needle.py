"""A number hidden far above, and the draft that has to know it (the paper's Table 1)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from specx.bench.experiments.experiment import INPUT, METHOD, Columns, Experiment, table
from specx.bench.forcing import Expectation, force
from specx.bench.grouping import Group, methods_first
from specx.bench.lengths import label
from specx.bench.methods.engine import model_drafting
from specx.bench.needles import Needle, hide
from specx.bench.report.findings import Figure, Series, Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench
from specx.errors import UsageError

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
DEFINED = (
    "A paragraph that opens with a random number is hidden in each document, and target and draft "
    "are fed the sentence that quotes it, token by token, each method retrieving as it does in "
    "decoding. Accuracy is the share of the number's tokens that the draft finds most probable, "
    "given all the text before; perplexity is exp(−mean ln q) of the probabilities q that the "
    "draft gives to them."
)


def measure(bench: Workbench) -> Iterator[Run]:
    task = next((task for task in bench.tasks if task != "control"), None)
    if task is None:
        raise UsageError("a needle is quoted as it is; the task control cannot be measured here")
    methods = model_drafting(bench.methods, Setting(bench.pair, bench.profile))
    kind, tokenizer = bench.kind(task), bench.pair.target.tokenizer
    for length in bench.lengths:
        for case in bench.cases(length, task):
            for depth in DEPTHS:
                bench.announce(f"needle at {depth:.0%}", case)
                needle = hide(kind, tokenizer, case, depth)
                prompt = needle.prompt.token_ids
                setting = bench.setting_behind(prompt)
                for method in methods:
                    expected = list(force(method, setting, prompt, needle.quote))
                    facts = _facts(needle, expected)
                    run = Run.of(method.name, case, needle.quote, facts=facts)
                    run = replace(run, prompt_tokens=len(prompt))
                    bench.listener.ran(run)
                    yield run


def _facts(needle: Needle, expected: Sequence[Expectation]) -> dict[str, object]:
    digits = [expected[place - 1] for place in needle.digits]
    return {
        "depth": needle.depth,
        "draft_is_right": [each.draft_is_right for each in digits],
        "target_is_right": [each.target_is_right for each in digits],
        "draft_logprobs": [float(each.draft[each.token]) for each in digits],
    }


def accuracy(group: Group) -> float:
    return mean(group.gathered("draft_is_right"))


def perplexity(group: Group) -> float:
    return math.exp(-mean(group.gathered("draft_logprobs")))


def _where_the_target_is_right(group: Group) -> float | None:
    pairs = zip(group.gathered("draft_is_right"), group.gathered("target_is_right"), strict=True)
    draft = [draft_is_right for draft_is_right, target_is_right in pairs if target_is_right]
    return mean(draft) if draft else None


COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "digits": lambda group: len(group.gathered("draft_is_right")),
    "accuracy": accuracy,
    "perplexity": perplexity,
    "accuracy where the target is right": _where_the_target_is_right,
    "target's accuracy": lambda group: mean(group.gathered("target_is_right")),
}


def describe(_: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = methods_first(runs)
    note = f"Needles at {', '.join(f'{depth:.0%}' for depth in _depths(runs))} of each document."
    yield table("Needle retrieval by the draft", groups, COLUMNS, note=note)
    length = max(group.length for group in groups)
    yield Figure(
        "needle",
        f"Needle retrieval by the draft, {label(length)} tokens",
        "depth of the needle, share of the document",
        "accuracy",
        tuple(_line(group) for group in groups if group.length == length),
    )


def _depths(runs: Sequence[Run]) -> list[float]:
    return sorted({run.facts["depth"] for run in runs})


def _line(group: Group) -> Series:
    """Return the accuracy of a method by depth."""
    depths = tuple(_depths(group.runs))
    at = [[run for run in group.runs if run.facts["depth"] == depth] for depth in depths]
    return Series(group.method, depths, tuple(accuracy(replace(group, runs=runs)) for runs in at))


EXPERIMENT = Experiment(
    name="needle",
    title="Needle retrieval by the draft",
    about="whether the draft knows a number from far above (the paper's Table 1)",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
