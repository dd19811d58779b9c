"""Print the table of what a pair can expect, and draw its figure, from raw files of the benchmark.

``python docs/expectation.py 16K "8B + 68M=docs/measurements/bench/NAME.json" …``: a column for
each name, of files of ``specx bench --experiment expectation``. The figure, with a line for each
length in the files of the first name, goes to ``figures/expectation.svg``.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from specx.bench.report.figures import draw, styles_of, to_svg
from specx.bench.report.files import load_bench
from specx.bench.report.report import Figure, Findings, show

FIGURE = Path(__file__).parent / "figures" / "expectation.svg"
NAME = "expectation"
SPECULATORS = "https://github.com/vllm-project/speculators"
PUBLISHED = (  # acceptance length, what has it, on what, source
    ("2.30", "EAGLE-3, Qwen3 8B", "LongBench v2, 2K", f"{SPECULATORS}/pull/684"),
    ("1.69", "the same", "8K", f"{SPECULATORS}/pull/684"),
    ("1.09", "the same", "16K", f"{SPECULATORS}/pull/684"),
    ("1.56", "the same, trained and run in a window", "16K", f"{SPECULATORS}/pull/684"),
    ("2.39", "EAGLE-3, Qwen3 8B, chain of 7", "summarization", f"{SPECULATORS}/issues/563"),
    ("3.45", "the same", "mathematics", f"{SPECULATORS}/issues/563"),
    ("1.94", "EAGLE-3, Qwen3 30B-A3B, chain of 5", "summarization", f"{SPECULATORS}/pull/610"),
    (
        "3.53",
        "EAGLE-3, Llama 3.1 8B, chain of 7",
        "MT-bench",
        "https://github.com/vllm-project/vllm/issues/26191",
    ),
    (
        "5.39",
        "the same, 8 steps in SGLang",
        "MT-bench (80 questions)",
        "https://github.com/sgl-project/sglang/pull/4247",
    ),
)


def findings(path: Path) -> Findings:
    """Return what the experiment found, as it was saved."""
    sections = [each for each in load_bench(path).sections if each.name == NAME]
    if not sections:
        raise SystemExit(f"{path} has no experiment {NAME}")
    return sections[0].findings


def measured(files: Sequence[tuple[str, Findings]], length: str) -> Iterator[str]:
    """Yield the lines of the table: speed over plain decoding, and the acceptance length."""
    cells: dict[str, dict[str, str]] = {}
    for name, found in files:
        table = found.tables[0]
        for row in table.rows:
            cell = dict(zip(table.columns, row, strict=True))
            if cell["input"] == length:
                text = f"{show(cell['speedup'])} ({show(cell['τ'])})"
                cells.setdefault(str(cell["setting"]), {})[name] = text
    names = list(dict.fromkeys(name for name, _ in files))
    yield _row([f"setting, {length}", *names])
    yield "|---" * (1 + len(names)) + "|"
    for setting, texts in cells.items():
        yield _row([setting, *(texts.get(name, "–") for name in names)])


def published() -> Iterator[str]:
    """Yield the lines of the table of published acceptance lengths."""
    yield _row(["acceptance length", "draft", "text", "source"])
    yield "|---" * 4 + "|"
    for length, draft, text, source in PUBLISHED:
        yield _row([length, draft, text, f"[{'/'.join(source.split('/')[3:])}]({source})"])


def figure_of(files: Sequence[tuple[str, Findings]]) -> Figure:
    """Return the figure of speed against acceptance length of the first name."""
    drawn = [
        figure
        for name, found in files
        for figure in found.figures
        if name == files[0][0] and figure.name.startswith(NAME)
    ]
    return replace(drawn[0], series=tuple(chain.from_iterable(each.series for each in drawn)))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    named = [text.partition("=") for text in sys.argv[2:]]
    read = [(name, findings(Path(path))) for name, _, path in named]
    print("\n".join([*measured(read, sys.argv[1]), "", *published()]))
    shown = figure_of(read)
    FIGURE.write_text(to_svg(draw(shown, styles_of([shown]), title=shown.title)), encoding="utf-8")
