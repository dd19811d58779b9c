"""Whether a draft still knows a number from far above (the paper's Table 1)."""

import math
from collections.abc import Iterator, Sequence
from statistics import mean

from specx.bench.cases import Case
from specx.bench.experiments.experiment import Experiment
from specx.bench.forcing import DraftingMethod, force, model_drafting
from specx.bench.grouping import by, gathered
from specx.bench.lengths import label
from specx.bench.needles import Needle, hide
from specx.bench.report.findings import Figure, Findings, Series, Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench
from specx.engine.decode import read_beginning
from specx.errors import UsageError

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
COLUMNS = (
    "method",
    "input",
    "digits",
    "accuracy",
    "perplexity",
    "accuracy where the target is right",
    "target's accuracy",
)
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
                bench.listener.phase(
                    f"needle at {depth:.0%} of {case.name}, {label(length)} tokens"
                )
                needle = hide(kind, tokenizer, case, depth)
                read = read_beginning(bench.pair, needle.prompt.token_ids)
                for method in methods:
                    run = _ask(method, Setting(bench.pair, bench.profile, read=read), case, needle)
                    bench.listener.ran(run)
                    yield run


def _ask(method: DraftingMethod, setting: Setting, case: Case, needle: Needle) -> Run:
    expected = list(force(method, setting, needle.prompt.token_ids, needle.quote))
    digits = [expected[place - 1] for place in needle.digits]
    return Run(
        method=method.name,
        case=case.name,
        length=case.length,
        task=case.task,
        repeat=0,
        prompt_tokens=len(needle.prompt.token_ids),
        output=needle.quote,
        decode_s=0.0,
        facts={
            "depth": needle.depth,
            "draft_is_right": [each.draft_is_right for each in digits],
            "target_is_right": [each.target_is_right for each in digits],
            "draft_logprobs": [float(each.draft[each.token]) for each in digits],
        },
    )


def conclude(runs: Sequence[Run]) -> Findings:
    rows = [
        (
            method,
            label(length),
            len(gathered(own, "draft_is_right")),
            accuracy(own),
            perplexity(own),
            _where_the_target_is_right(own),
            mean(gathered(own, "target_is_right")),
        )
        for method, of_method in by(runs, "method").items()
        for length, own in sorted(by(of_method, "length").items())
    ]
    note = f"Needles at {', '.join(f'{depth:.0%}' for depth in _depths(runs))} of each document."
    return Findings(
        (Table("Needle retrieval by the draft", COLUMNS, tuple(rows), note=note),),
        (_figure(runs),) if runs else (),
        (DEFINED, *_compared(runs)),
    )


def accuracy(runs: Sequence[Run]) -> float:
    return mean(gathered(runs, "draft_is_right"))


def perplexity(runs: Sequence[Run]) -> float:
    return math.exp(-mean(gathered(runs, "draft_logprobs")))


def _where_the_target_is_right(runs: Sequence[Run]) -> float | None:
    pairs = zip(gathered(runs, "draft_is_right"), gathered(runs, "target_is_right"), strict=True)
    draft = [draft_is_right for draft_is_right, target_is_right in pairs if target_is_right]
    return mean(draft) if draft else None


def _depths(runs: Sequence[Run]) -> list[float]:
    return sorted({run.facts["depth"] for run in runs})


def _figure(runs: Sequence[Run]) -> Figure:
    length = max(run.length for run in runs)
    lines = []
    for method, own in by([run for run in runs if run.length == length], "method").items():
        depths = _depths(own)
        at = [accuracy([run for run in own if run.facts["depth"] == depth]) for depth in depths]
        lines.append(Series(method, tuple(depths), tuple(at)))
    return Figure(
        "needle",
        f"Needle retrieval by the draft, {label(length)} tokens",
        "depth of the needle, share of the document",
        "accuracy",
        tuple(lines),
    )


def _compared(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence a length: who knows most, beside all others."""
    for length, group in sorted(by(runs, "length").items()):
        found = {method: accuracy(own) for method, own in by(group, "method").items()}
        best, *others = sorted(found, key=lambda method: -found[method])
        if others:
            rest = ", ".join(f"{found[method]:.0%} under {method}" for method in others)
            yield (
                f"At {label(length)} tokens the draft knows {found[best]:.0%} of the digits under "
                f"{best}, and {rest}."
            )


EXPERIMENT = Experiment(
    "needle",
    "Needle retrieval by the draft",
    "whether the draft knows a number from far above (the paper's Table 1)",
    measure,
    conclude,
)
