"""The live table of a benchmark on stderr: the measurements so far, and the current phase."""

from statistics import mean, median
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text


class LiveTable:
    """On a terminal a table that grows, drawn over and over; elsewhere one line a measurement.

    with LiveTable(console) as live:
        live.phase("reading report.pdf")
        live.measured("specextend", "16K", "digest", 142.5, 8.3)
    """

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
        """Show what is being done now."""
        self._phase = text

    def section(self, title: str) -> None:
        """Begin another experiment, with a table of its own."""
        self._rows.clear()
        self._console.print(f"specx: {title}", soft_wrap=True)

    def measured(
        self, method: str, length: str, task: str, speed: float, acceptance: float
    ) -> None:
        """Show one more measurement: tokens/s of decoding, and acceptance length."""
        self._count += 1
        key = (method, length, task)
        self._rows[key] = [*self._rows.get(key, ()), (speed, acceptance)]  # a thread draws it
        if not self._draws:
            line = f"{speed:.1f} tokens/s, acceptance length {acceptance:.2f}"
            self._console.print(f"specx: {method}, {length}, {task}: {line}", soft_wrap=True)

    def _draw(self) -> RenderableType:
        table = Table("method", "input", "task", box=None, pad_edge=False)
        for name in ("tokens/s", "acceptance length", "runs"):
            table.add_column(name, justify="right")
        for key, runs in list(self._rows.items()):
            speeds, acceptance = zip(*runs, strict=True)
            table.add_row(*key, f"{median(speeds):.1f}", f"{mean(acceptance):.2f}", str(len(runs)))
        return Group(table, Text(f"{self._phase} ({self._count} measured)", overflow="ellipsis"))
