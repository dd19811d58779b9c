"""Whether what is written fast is as good: ROUGE against references, identity with plain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from specx.bench.cases import Case
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import BASELINE, by, same_output
from specx.bench.lengths import label
from specx.bench.report.findings import Findings, Table
from specx.bench.rouge import KINDS, Rouge, first_words
from specx.bench.runs import Run
from specx.bench.workbench import Workbench
from specx.prompts.prompt import Output

LEAD = "lead"
COLUMNS = ("text", "input", "documents", "ROUGE-1", "ROUGE-2", "ROUGE-L", "same output as plain")
DEFINED = (
    "ROUGE is the F-measure of rouge-score with stemming, against the summary that came with a "
    "document. The reference sums up the whole document, the prompt is its beginning. Lead is the "
    "beginning of the prompt's text with as many words as the output has: what a summary must "
    "beat. The same output is counted token by token, for every document."
)


def measure(bench: Workbench) -> Iterator[Run]:
    rouge = Rouge()
    for task in bench.tasks:
        for length in bench.lengths:
            cases = bench.cases(length, task)
            case_of = {case.name: case for case in cases}
            for run in bench.alternate(cases):
                yield _with_quality(bench, case_of[run.case], run, rouge)


def _with_quality(bench: Workbench, case: Case, run: Run, rouge: Rouge) -> Run:
    reference = case.document.reference
    if reference is None:
        return run
    reader = bench.kind(case.task).reader(case.prompt)
    ends = bench.pair.target.eos_token_ids
    reader.feed([token for token in run.output if token not in ends])
    text = words_of(reader.finish()[1])
    read = " ".join(unit.text for unit in case.prompt.units)
    lead = first_words(read, len(text.split()))
    facts = {"rouge": rouge.score(text, reference), LEAD: rouge.score(lead, reference)}
    return replace(run, facts=facts)


def words_of(output: Output) -> str:
    """The sentences without their citations."""
    return " ".join(quote.sentence for quote in output.quotes) or output.text


def conclude(runs: Sequence[Run]) -> Findings:
    tables, sentences = [], [DEFINED]
    for task, of_task in by(runs, "task").items():
        rows = [row for _, group in sorted(by(of_task, "length").items()) for row in _rows(group)]
        tables.append(Table(f"Quality, {task}", COLUMNS, tuple(rows), BASELINE))
        sentences += _sentences(task, of_task)
    return Findings(tuple(tables), sentences=tuple(sentences))


def _rows(runs: Sequence[Run]) -> Iterator[tuple[str | float | None, ...]]:
    """All methods at one length, and lead."""
    for method, own in by(runs, "method").items():
        yield _row(method, own, "rouge", same_output(runs, method))
    if _scored(runs):
        first = next(iter(by(runs, "method").values()))
        yield _row(LEAD, first, LEAD, None)


def _row(
    name: str, runs: Sequence[Run], fact: str, same: str | None
) -> tuple[str | float | None, ...]:
    documents = len(by(runs, "case"))
    return (name, label(runs[0].length), documents, *scores(runs, fact).values(), same)


def scores(runs: Sequence[Run], fact: str) -> dict[str, float | None]:
    """Mean of each kind of ROUGE over the runs that have a reference; None where none has."""
    scored = _scored(runs)
    return {
        kind: mean(run.facts[fact][kind] for run in scored) if scored else None for kind in KINDS
    }


def _scored(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if "rouge" in run.facts]


def _sentences(task: str, runs: Sequence[Run]) -> Iterator[str]:
    without = {run.case for run in runs} - {run.case for run in _scored(runs)}
    if without:
        yield f"Without a reference, so with identity alone: {', '.join(sorted(without))}."
    for length, group in sorted(by(_scored(runs), "length").items()):
        where = f"{task.capitalize()} at {label(length)} tokens"
        lead = scores(next(iter(by(group, "method").values())), LEAD)["rouge1"]
        found = {m: scores(own, "rouge")["rouge1"] for m, own in by(group, "method").items()}
        said = ", ".join(f"{value:.3f} with {method}" for method, value in found.items())
        yield f"{where}: ROUGE-1 is {said}, and {lead:.3f} of lead."
    changed = [method for method in by(runs, "method") if _changes(runs, method)]
    if len(by(runs, "method")) > 1 and BASELINE in by(runs, "method"):
        yield (
            f"{task.capitalize()}: the output is not always that of {BASELINE} with "
            f"{', '.join(changed)}."
            if changed
            else f"{task.capitalize()}: every method wrote what {BASELINE} wrote, token for token."
        )


def _changes(runs: Sequence[Run], method: str) -> bool:
    """Whether a method ever wrote something else than the baseline."""
    same = same_output(runs, method)
    if same is None:
        return False
    alike, asked = same.split(" of ")
    return alike != asked


EXPERIMENT = Experiment(
    "quality",
    "Quality of the output",
    "ROUGE against reference summaries, beside lead, and identity with plain decoding",
    measure,
    conclude,
)
