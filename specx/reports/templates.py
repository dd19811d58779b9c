"""The templates of HTML pages, which share one look: a base, a style sheet and the colours."""

from functools import cache
from typing import TYPE_CHECKING

from specx.reports.palette import DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates(*packages: str) -> "Environment":
    """Return the templates of this package, and those of others, which may extend ``base``."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "") for name in (*packages, "specx.reports")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"light": LIGHT, "dark": DARK}
    return environment
