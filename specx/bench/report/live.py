"""The live table of a benchmark on stderr: the measurements so far, and the current phase."""

from statistics import mean, median
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specx.bench.request import BenchListener
from specx.reports.figures import label

if TYPE_CHECKING:
    from specx.bench.runs import Measurement


class LiveTable(BenchListener):
    """A growing table, redrawn on a terminal; elsewhere one line per measurement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._count = 0
        self._rows: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        self._draws = console.is_interactive and not console.quiet
        self._live = Live(console=console, get_renderable=self._draw, transient=True)

    def __enter__(self) -> Self:
        if self._draws:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        self._phase = text

    def section(self, title: str) -> None:
        """Begin another table."""
        self._rows.clear()
        self._console.print(f"specx: {title}", soft_wrap=True)

    def ran(self, run: "Measurement") -> None:
        self._count += 1
        key = (run.method, label(run.length), run.task)
        speed, acceptance = run.tokens_per_second, run.acceptance_length
        self._rows[key] = [*self._rows.get(key, ()), (speed, acceptance)]  # a thread draws it
        if not self._draws:
            line = f"acceptance length {acceptance:.2f}"
            line = f"{speed:.1f} tokens/s, {line}" if speed else line  # a replay has no speed
            self._console.print(f"specx: {', '.join(key)}: {line}", soft_wrap=True)

    def _draw(self) -> RenderableType:
        table = Table("method", "input", "task", box=None, pad_edge=False)
        for name in ("tokens/s", "acceptance length", "runs"):
            table.add_column(name, justify="right")
        for key, runs in list(self._rows.items()):
            speeds, acceptance = zip(*runs, strict=True)
            table.add_row(*key, f"{median(speeds):.1f}", f"{mean(acceptance):.2f}", str(len(runs)))
        return Group(table, Text(f"{self._phase} ({self._count} measured)", overflow="ellipsis"))
