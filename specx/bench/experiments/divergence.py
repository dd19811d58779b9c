"""The place where speculative output leaves plain decoding's, and how near the two tokens were.

In exact arithmetic the two are the same. In floating point a pass over 64 rows and one over a
single row round differently, so a tie can flip; then the gap between the logits of the two tokens
must be of the size of that difference, or something is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specx.bench.baselines.chain import unbranched_tree
from specx.bench.cases import Case
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by, by_case
from specx.bench.lengths import label
from specx.bench.methods import find_methods
from specx.bench.report.findings import Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench
from specx.ops.trees import MAX_ROWS, root_only

METHODS = ("plain", "specextend")
COMPARED = ("at", "gap", "difference")
ALLOWED = 2.0  # a flip needs both logits to move towards each other
DEFINED = (
    f"Outputs are compared with those of {METHODS[0]} decoding, token for token. They part at a "
    f"tie where the logits of the two tokens are at most {ALLOWED:g} times as far apart as the "
    "logits of a pass over one row and one over 64 rows differ at that place."
)


def measure(bench: Workbench) -> Iterator[Run]:
    plain, other = find_methods(",".join(METHODS), bench.profile)
    once = replace(bench, repeats=1)
    for case in bench.all_cases():
        first: Run | None = None
        for run in once.alternate([case], [plain, other], warm_up=False):
            if first is None:
                first = run
                yield run
            elif run.output == first.output:
                yield replace(run, facts={"at": None})
            else:
                yield replace(run, facts=compare(bench.setting(case), case, first, run))


def compare(setting: Setting, case: Case, plain: Run, other: Run) -> dict[str, float | int | None]:
    """Return ``at``: the first output token that differs, or None; the ``gap`` between the logits
    of the two tokens there, and the largest ``difference`` between logits of a pass over one row
    and one over 64 rows at that place."""
    at = first_difference(plain.output, other.output)
    if at is None:
        return {"at": None}
    if min(len(plain.output), len(other.output)) <= at:  # one of them goes on where the other ends
        return {"at": at, "gap": None, "difference": None}
    single, many = logits_at(setting, [*case.ids, *plain.output[:at]])
    ours, theirs = plain.output[at], other.output[at]
    usable = single.isfinite() & many.isfinite()
    return {
        "at": at,
        "gap": float((single[ours] - single[theirs]).abs()),
        "difference": float((single - many)[usable].abs().max()),
    }


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Return the first place at which two outputs are not the same; None where they are equal."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return None if len(a) == len(b) else min(len(a), len(b))


@torch.inference_mode()
def logits_at(setting: Setting, text: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return float32 logits [V] behind ``text``, −inf for ids that may not be produced: from a
    pass over its last token alone, and from one over a tree of 64 rows."""
    pair, forbidden = setting.pair, ~setting.pair.target_allowed
    target = setting.target(pair.target, len(text) + 2 * MAX_ROWS, None)
    ids = torch.tensor(text, dtype=torch.int64, device=pair.target.device)
    for _ in target.prefill(ids[:-1]):
        pass
    alone = target.verify(root_only(ids[-1:]))[0].float()
    # What follows the first row does not matter to it.
    among_many = target.verify(unbranched_tree(ids[-1:].repeat(MAX_ROWS)))[0].float()
    return alone.masked_fill(forbidden, -torch.inf), among_many.masked_fill(forbidden, -torch.inf)


def describe(task: str, runs: list[Run]) -> Iterator[Table]:
    pairs = [
        (methods[METHODS[0]][0], methods[METHODS[1]][0])
        for group in by_case(runs).values()
        if all(method in (methods := by(group, "method")) for method in METHODS)
    ]
    if not pairs:
        return
    apart = [run for _, run in pairs if run.facts.get("at") is not None]
    columns = ("document", "input", "token", "gap", "largest difference", "a tie")
    rows = tuple(
        (
            run.case,
            label(run.length),
            *(run.facts[key] for key in COMPARED),
            "yes" if _is_tie(run) else "no",
        )
        for run in apart
    )
    yield Table(f"Where outputs part, {task}", columns, rows)
    ties = sum(map(_is_tie, apart))
    yield Table(
        f"Outputs of {METHODS[1]}, {task}",
        ("outputs", "the same", "parted at a tie", "parted elsewhere"),
        ((len(pairs), len(pairs) - len(apart), ties, len(apart) - ties),),
    )


def _is_tie(run: Run) -> bool:
    gap, difference = run.facts["gap"], run.facts["difference"]
    return gap is not None and gap <= ALLOWED * difference


EXPERIMENT = Experiment(
    name="divergence",
    title="Where speculative output leaves plain decoding's",
    about="the first token that differs, and the gap between the two logits there",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
