"""A benchmark with all that is hard to write down: names that are markup, numbers of every size."""

from specx.bench.report import BenchReport, Findings, ReportSection, Table

METHODS = (*(f"method-{number}" for number in range(9)), "<b>&\"'$x$")
HOSTILE = "<script>alert('&')</script>"

TABLE = Table(
    "Speed",
    ("method", "input", "tokens/s", "tokens", "same output"),
    (
        (METHODS[0], "1K", 1234.5, 1234567, "3 of 3"),
        (METHODS[0], "4K", 0.012345, 0, None),
        (METHODS[9], "1K", -9.996, None, "2 of 3"),
    ),
    "plain",
    "Medians | of runs.",
)


def make_bench(interrupted: bool = False) -> BenchReport:
    sections = (
        ReportSection(
            "speedup",
            f"Speed {HOSTILE}",
            "every method",
            Findings((TABLE,), (f"A note with {HOSTILE}.",)),
            ({"method": "plain", "output": list(range(300)), "facts": {"gap": 0.1}},),
        ),
        ReportSection("parts", "Parts", "of a step", Findings(sentences=("2 ms",))),
    )
    return BenchReport(
        title=f"mini {HOSTILE}",
        date="2026-11-20",
        command="specx bench --length 1k --out `x`",
        environment={
            "cpu": None,
            "device": "H200",
            "packages": {"torch": "2.13.0"},
            "gpus": ["one", "two"],
        },
        settings={"name": "mini", "tree": {"nodes": 50}},
        documents=tuple({"name": f"{number}*.pdf", "characters": 1000} for number in range(9)),
        methods={METHODS[0]: "the <first>", "plain": "the baseline"},
        warnings=(f"beware of {HOSTILE}",),
        interrupted=interrupted,
        sections=() if interrupted else sections,
    )
