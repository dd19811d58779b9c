"""A figure inside a page: it follows the page's colours and font, and is read aloud."""

import math
import re
from collections.abc import Mapping
from html import escape

from specx.bench.report.figures import compose, to_svg
from specx.bench.report.findings import Figure, Series
from specx.bench.report.numbers import show, tokens
from specx.bench.report.palette import LIGHT, Look

KINDS = {"lines": "Lines", "bars": "Bars", "stacked": "Stacked bars"}

_BEFORE = re.compile(r"^.*?(?=<svg)", re.DOTALL)  # of XML, where a page is HTML
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_STYLE = re.compile(r"\s*<style.*?</style>", re.DOTALL)  # is for the whole page; see page.css
_NAMESPACE = re.compile(r'\s+xmlns(:\w+)?="[^"]*"')
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"')
_FONT = re.compile(r"font: ((?:\w+ )?[\d.]+px)[^;\"]*|font-family: [^;\"]*")
_ID = re.compile(r'(\bid="|href="#|url\(#)')
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def inline_svg(name: str, figure: Figure, looks: Mapping[str, Look]) -> str:
    """The ``<svg>`` element, with ids that begin with ``name`` and colours that are CSS variables
    (``palette.py``)."""
    svg = to_svg(compose(figure, looks))
    for pattern, new in (
        (_BEFORE, ""),
        (_METADATA, ""),
        (_STYLE, ""),
        (_NAMESPACE, ""),
        (_SIZE, r"\1"),
        (_FONT, _size_only),
        (_ID, rf"\g<1>{name}-"),
        (_COLOUR, _variable),
    ):
        svg = pattern.sub(new, svg)
    svg = svg.replace("xlink:href", "href")
    opening, closing, rest = svg.partition(">")
    labels = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    return (
        f"{opening} {labels}{closing}\n"
        f'<title id="{name}-title">{escape(figure.title)}</title>\n'
        f'<desc id="{name}-desc">{escape(describe(figure))}</desc>{rest.rstrip()}'
    )


def describe(figure: Figure) -> str:
    """What a person who does not see the figure is told: axes, and each series from end to end."""
    kind = f"{KINDS[figure.kind]}: {figure.y_label} by {figure.x_label}."
    return " ".join((kind, *(_course(series, figure) for series in figure.series)))


def _course(series: Series, figure: Figure) -> str:
    points = [
        f"{show(y)} at {_place(x, figure)}"
        for x, y in zip(series.x, series.y, strict=True)
        if math.isfinite(y)
    ]
    if figure.kind == "lines":
        points = points[:1] + points[1:][-1:]
    return f"{series.label}: {', '.join(points) or 'nothing'}."


def _place(x: float | str, figure: Figure) -> str:
    return tokens(x) if figure.log_x and not isinstance(x, str) else show(x)


def _size_only(match: re.Match[str]) -> str:
    """The font's size in the figure; the family is the page's."""
    return f"font-size: {match[1].rpartition(' ')[2]}" if match[1] else "font-family: inherit"


def _variable(match: re.Match[str]) -> str:
    names = {colour: name for name, colour in LIGHT.variables().items()}
    return f"var({names[match[0]]})" if match[0] in names else match[0]
