"""The live table of a benchmark on stderr: what was measured so far, what is being done."""

from dataclasses import dataclass, field
from statistics import mean, median
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

REFRESHES_PER_SECOND = 4


@dataclass
class _Row:
    speeds: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)


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
        self._rows: dict[tuple[str, str, str], _Row] = {}
        draws = console.is_interactive and not console.quiet
        self._live = (
            Live(
                console=console,
                get_renderable=self._draw,
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,
            )
            if draws
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def phase(self, text: str) -> None:
        """What is being done now."""
        self._phase = text

    def section(self, title: str) -> None:
        """Another experiment begins, with a table of its own."""
        self._rows = {}
        self._console.print(f"specx: {title}", soft_wrap=True)

    def measured(
        self, method: str, length: str, task: str, speed: float, acceptance: float
    ) -> None:
        """One more measurement: tokens/s of decoding, and acceptance length."""
        self._count += 1
        row = self._rows.setdefault((method, length, task), _Row())
        row.speeds.append(speed)
        row.acceptance.append(acceptance)
        if self._live is None:
            self._console.print(
                f"specx: {method}, {length}, {task}: {speed:.1f} tokens/s, "
                f"acceptance length {acceptance:.2f}",
                soft_wrap=True,
            )

    def _draw(self) -> RenderableType:
        table = Table("method", "input", "task", box=None, pad_edge=False)
        for name in ("tokens/s", "acceptance length", "runs"):
            table.add_column(name, justify="right")
        for (method, length, task), row in self._rows.items():
            table.add_row(
                method,
                length,
                task,
                f"{median(row.speeds):.1f}",
                f"{mean(row.acceptance):.2f}",
                str(len(row.speeds)),
            )
        return Group(table, Text(f"{self._phase} ({self._count} measured)", overflow="ellipsis"))
