"""Figures of all kinds, and a benchmark with everything in it that is hard to write down: names
that are markup, numbers of every size, a figure without data."""

from specx.bench.report.report import (
    BenchReport,
    Figure,
    Findings,
    ReportSection,
    Series,
    Table,
)

LENGTHS = (1024, 4096, 16384)
METHODS = (*(f"method-{number}" for number in range(9)), "<b>&\"'$x$")
HOSTILE = "<script>alert('&')</script>"


def make_series(label: str, scale: float) -> Series:
    y = tuple(scale * (1 + place) for place in range(len(LENGTHS)))
    return Series(label, LENGTHS, y, tuple(0.9 * v for v in y), tuple(1.1 * v for v in y))


MANY = Figure(
    "many",
    "Speedup over plain",
    "input, tokens",
    "speedup",
    tuple(make_series(name, 1 + place / 10) for place, name in enumerate(METHODS)),
    log_x=True,
    level=1.0,
)
FEW = Figure("few", f"Two, {HOSTILE}", "chunks", "speedup", MANY.series[:2])
BARS = Figure(
    "bars",
    "Prefill",
    "method",
    "seconds",
    (Series("prefill", METHODS, tuple(float(i + 1) for i in range(10))),),
    kind="bars",
)
STACKED = Figure(
    "stacked",
    "A step",
    "input, tokens",
    "milliseconds",
    (
        Series("drafting", LENGTHS, (1.0, 2.0, 3.0)),
        Series("keep", LENGTHS, (0.5, 0.5, 0.5)),
        Series("host", LENGTHS, (0.2, 0.3, 0.4)),
    ),
    kind="stacked",
    log_x=True,
)
EMPTY = Figure("empty", "Control", "input, tokens", "speedup", ())
FIGURES = (FEW, STACKED)  # of the report

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
            Findings(
                (TABLE,), (*FIGURES, EMPTY), (f"A note with {HOSTILE}.",), f"3 × plain {HOSTILE}"
            ),
            ({"method": "plain", "output": list(range(300)), "facts": {"gap": 0.1}},),
        ),
        ReportSection("parts", "Parts", "of a step", Findings(headline="2 ms")),
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
