"""Quality of what is written fast: ROUGE against references, identity with plain decoding."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

from specx.bench.experiments.experiment import INPUT, Columns, Experiment, in_turn, table
from specx.bench.grouping import BASELINE, Group, by, groups_of
from specx.bench.report.report import Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.prompts.prompt import Output

KINDS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
LEAD = "lead"
DEFINED = (
    "ROUGE is the F-measure of rouge-score with stemming, against the summary that came with a "
    "document. The reference sums up the whole document, the prompt is its beginning. Lead is the "
    "beginning of the prompt's text with as many words as the output has: what a summary must "
    "beat. The same output is counted token by token, for every document."
)


class Rouge:
    """F-measures of single words, pairs of words and the longest common subsequence, with stemmed
    words, as the library ``rouge-score`` counts them (Lin 2004)."""

    def __init__(self) -> None:
        """Raises UsageError where ``rouge-score`` is missing, which a plain install lacks."""
        try:
            from rouge_score.rouge_scorer import RougeScorer  # takes a second to import
        except ImportError:
            raise UsageError(
                "quality needs the package rouge-score, which is not installed: "
                "`pip install 'rouge-score>=0.1.2'`"
            ) from None
        self._scorer: Any = RougeScorer(list(KINDS), use_stemmer=True)

    def score(self, text: str, reference: str) -> dict[str, float]:
        """Return the score of each kind, from 0 to 1."""
        scores = self._scorer.score(reference, text)
        return {kind: scores[kind].fmeasure for kind in KINDS}


def measure(bench: Workbench) -> Iterator[Measurement]:
    rouge = Rouge()
    for run in in_turn(bench):
        yield _with_quality(bench, run, rouge)


def _with_quality(bench: Workbench, run: Measurement, rouge: Rouge) -> Measurement:
    case = bench.case_of(run)
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
    """Return the sentences without their citations."""
    return " ".join(quote.sentence for quote in output.quotes) or output.text


def first_words(text: str, count: int) -> str:
    return " ".join(text.split()[:count])


def score(group: Group, kind: str) -> float | None:
    """Return the mean over the runs that have a reference, of the output or of lead; None where
    none has."""
    fact = LEAD if group.method == LEAD else "rouge"
    found = [run.facts[fact][kind] for run in group.runs if fact in run.facts]
    return mean(found) if found else None


COLUMNS: Columns = {
    "text": lambda group: group.method,
    **INPUT,
    "documents": lambda group: len(by(group.runs, "case")),
    **{name: partial(score, kind=kind) for kind, name in KINDS.items()},
    f"same output as {BASELINE}": Group.same_output,
}


def describe(task: str, runs: list[Measurement]) -> Iterator[Table]:
    rows = []
    for _, peers in sorted(by(runs, "length").items()):
        groups = groups_of(peers)
        rows += groups
        if any(LEAD in run.facts for run in peers):
            rows.append(replace(groups[0], method=LEAD))
    yield table(f"Quality, {task}", rows, COLUMNS, baseline=BASELINE)


EXPERIMENT = Experiment(
    name="quality",
    title="Quality of the output",
    about="ROUGE against reference summaries, beside lead, and identity with plain decoding",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
