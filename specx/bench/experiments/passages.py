"""Sources of sentences: attention held against leaving passages out."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.profile import resolve
from specx.prompts.instruct import Instruct
from specx.runs.calibration import source_layer
from specx.runs.measured_sources import (
    APART,
    STRONG,
    MeasuredSentence,
    Standing,
    measure_sentences,
)

FIFTHS = 5
WAYS = {
    "layer": "attention, the layer of sources",
    "last": "attention, the final layer",
    "all": "attention, the mean over layers",
    "common": "most words in common",
    "chance": "chance",
}
DEFINED = (
    "The truth is the passage of 64 tokens without which the sentence becomes least likely, among "
    f"the sentences that depend on it strongly: they lose {STRONG:g} nats without it, {APART:g} "
    "more than without any other. Attention is that of the queries that predict the sentence, by "
    "head the sum of a passage's four strongest tokens, then the mean. Confidence is the attention "
    "to the first passage, of all that the sentence pays to anything."
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A sentence: does it depend on one passage strongly, the place of that passage by each of
    ``WAYS``, and the confidence of attention in its first one."""

    strong: bool
    places: dict[str, Standing]
    attention: float
    share: float
    lead: float


def measure(bench: Workbench) -> Iterator[Run]:
    profile, pair = bench.profile, bench.pair
    if bench.tasks != ("instruct",):
        raise UsageError(
            f"profile {profile.name} copies sentences and cites them; sources are of summaries in "
            "a model's own words: name one with --model"
        )
    layer = source_layer(pair.target, profile.target.revision)
    if layer is None:
        raise UsageError(
            f"every layer of {pair.target.source} has a window, so its attention does not tell "
            "sources; choose a model with layers that see the whole text"
        )
    place = pair.target.full_layers.index(layer)
    kind = bench.kind("instruct")
    assert isinstance(kind, Instruct)
    settings = resolve(profile, "plain", pair.facts)
    for case in bench.all_cases():
        bench.announce("leaving passages out", case)
        sentences = measure_sentences(pair, settings, kind, case.prompt)
        judged = [asdict(judge(sentence, place)) for sentence in sentences]
        run = Run.of("plain", case, (), facts={"layer": layer, "sentences": judged})
        bench.listener.ran(run)
        yield run


def judge(sentence: MeasuredSentence, layer: int) -> Judged:
    """Rank the passages of a sentence in every way. ``layer``: its place in ``attention``."""
    own, count = sentence.attention[layer], len(sentence.lost)
    scores = {
        "layer": own,
        "last": sentence.attention[-1],
        "all": [mean(of_layers) for of_layers in zip(*sentence.attention, strict=True)],
        "common": sentence.common,
        "chance": [0.0] * count,
    }
    first, second = [*sorted(own, reverse=True), 0.0][:2]
    return Judged(
        strong=sentence.is_strong,
        places={way: sentence.place(each) for way, each in scores.items()},
        attention=first,
        share=first / sum(own),
        lead=1 - second / first,
    )


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    rows: list[tuple[Cell, ...]] = []
    for length, of_length in sorted(by(runs, "length").items()):
        strong = strong_of(of_length)
        for way, name in WAYS.items():
            if strong:
                rows.append((label(length), name, len(strong), *hits(strong, way)))
    header = ("input", "told by", "strong sentences", "first", "in the first two", "in the first 3")
    yield Table(f"The passage that a sentence depends on, {task}", header, tuple(rows))
    strong = strong_of(runs)
    if len(strong) >= FIFTHS:
        shares = tuple(right_by_confidence(strong))
        places = tuple(f"fifth {n}" for n in range(1, FIFTHS + 1))
        series = Series("right", places, shares)
        yield Figure(
            f"sources-confidence-{task}",
            "Sentences whose first passage is the one they depend on, by confidence",
            "sentences, the least confident first",
            "share that is right",
            (series,),
            kind="bars",
        )


def strong_of(runs: Sequence[Run]) -> list[Judged]:
    """Return the sentences of some runs that depend on one passage strongly."""
    judged = (Judged(**each) for run in runs for each in run.facts["sentences"])
    return [each for each in judged if each.strong]


def hits(sentences: Sequence[Judged], way: str) -> tuple[float, float, float]:
    """Return how often the passage is the first, in the first two and three, ties by chance."""
    places = [Standing(*each.places[way]) for each in sentences]
    one, two, three = (mean(place.within(most) for place in places) for most in (1, 2, 3))
    return one, two, three


def right_by_confidence(sentences: Sequence[Judged]) -> Iterator[float]:
    """Yield the share of right sentences in each fifth, the least confident first."""
    ordered = sorted(sentences, key=lambda each: each.attention)
    for n in range(FIFTHS):
        part = ordered[len(ordered) * n // FIFTHS : len(ordered) * (n + 1) // FIFTHS]
        yield mean(Standing(*each.places["layer"]).within(1) for each in part)


EXPERIMENT = Experiment(
    name="sources",
    title="Which passage a sentence is from",
    about="attention to passages against leaving them out, for summaries in a model's own words",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
