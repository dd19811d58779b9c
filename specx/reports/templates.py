"""The templates of HTML pages, which share a base, a style sheet and colours."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
import os
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import quote


@cache
def templates() -> "Environment":
    """Return the templates of this package, which extend ``base``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("specx.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"light": LIGHT, "dark": DARK}
    return environment


@dataclass(frozen=True)
class Palette:
    """The colours of all pages.

    ``paper``: page background. ``muted``: secondary text. ``surface``: background of boxes.
    ``mark``: background of quotations. ``series``: lines and bars.
    """

    paper: str
    ink: str
    muted: str
    grid: str
    surface: str
    link: str
    mark: str
    series: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """All colours by their names in CSS."""
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


def link(target: Path, page: Path) -> str:
    """Return the relative address of ``target`` for the HTML file ``page``.

    Names may be anything, including invalid UTF-8. Symbolic links are not resolved, because a
    browser does not resolve them for ``..`` either.
    """
    relative = os.path.relpath(target, page.parent)
    return quote(os.fsencode(relative))
