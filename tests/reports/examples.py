"""A report small enough to work out every figure by hand."""

from specx.documents.document import Place
from specx.prompts.prompt import Passage, SummarySentence
from specx.records import Step, Tally, Timings
from specx.reports.report import InputFacts, Report
from tests.places import make_quote

# One token from prefill, then five passes: 0, 1, 2 and 2 drafts accepted, and one without drafts.
STEPS = (
    Step(tokens=(1,), drafted=0, accepted=0, seconds=0.0, passes=0),
    Step(tokens=(2,), drafted=8, accepted=0, seconds=0.1),
    Step(tokens=(3, 4), drafted=8, accepted=1, seconds=0.1),
    Step(tokens=(5, 6, 7), drafted=8, accepted=2, seconds=0.1),
    Step(tokens=(8, 9, 10), drafted=6, accepted=2, seconds=0.1),
    Step(tokens=(11,), drafted=0, accepted=0, seconds=0.1),
)


def make_tally() -> Tally:
    tally = Tally()
    for step in STEPS:
        tally.add(step)
    return tally


def make_report(name: str = "report.pdf") -> Report:
    return Report(
        input=InputFacts(
            name=name,
            pages=12,
            characters=34567,
            prompt_tokens=8901,
            parts=1,
            span=[1, 12],
            kind="pdf",
            words=5678,
        ),
        profile="mini",
        method="specextend",
        summary="First sentence.\nSecond sentence.",
        tally=make_tally(),
        timings=Timings(read=0.5, target_prefill=1.0, drafting=0.2, verification=0.3, total=2.0),
        peak_memory_bytes=1_230_000_000,
        environment={"specx": "0.1.0", "cpu": None, "packages": {"torch": "2.13.0"}},
        citations=[
            make_quote("First *sentence*.", paragraph=3, page=2, heading="All *costs*"),
            make_quote("Second | sentence.", paragraph=9, lines=(4, 9)),
        ],
        warnings=["page 4 has no text"],
    )


def make_source(page: int, text: str, share: float = 0.4) -> Passage:
    """Return a passage on a page, in the paragraph of the same number."""
    quote = make_quote(text, paragraph=page, page=page)
    place = Place(paragraph=page - 1, start=quote.start, end=quote.end, whole=quote.whole)
    return Passage(share, (place,))


def make_sentence(text: str, *sources: Passage, lead: float = 0.5) -> SummarySentence:
    """Return a sentence of a summary with its sources, by default one on page 2."""
    return SummarySentence(
        text=text,
        start=0,
        sources=sources or (make_source(2, "Seven."),),
        attention=0.04,
        lead=lead,
    )
