"""Colours of pages and figures, on white and on dark.

The eight colours of series keep apart for eyes that lack one kind of cone, and stand out from
the paper; ``tests/reports/test_palette.py`` computes both.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Palette:
    """``paper``: behind everything. ``muted``: text that is beside the point. ``surface``: behind
    boxes. ``mark``: behind what is quoted. ``series``: of lines and bars."""

    paper: str
    ink: str
    muted: str
    grid: str
    surface: str
    link: str
    mark: str
    series: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """Every colour by the name that it has in CSS."""
        named = {f"--{part.name}": getattr(self, part.name) for part in fields(self)[:-1]}
        return named | {f"--series-{i}": colour for i, colour in enumerate(self.series)}


LIGHT = Palette(
    paper="#ffffff",
    ink="#1b1f24",
    muted="#59636e",
    grid="#dfe3e8",
    surface="#f5f7f9",
    link="#0a58b5",
    mark="#fbe8b0",
    series=(
        *("#0f61bf", "#ae4300", "#038f5d", "#ad54a3"),
        *("#129bdf", "#bb8900", "#63214c", "#697076"),
    ),
)
DARK = Palette(
    paper="#14171a",
    ink="#e6e9ec",
    muted="#9ba5af",
    grid="#31373d",
    surface="#1d2125",
    link="#7db4f5",
    mark="#4f4216",
    series=(
        *("#6ea3ec", "#ec782b", "#31c48a", "#fb8ec5"),
        *("#92e1ff", "#ffd258", "#6f6cdb", "#7c8383"),
    ),
)
