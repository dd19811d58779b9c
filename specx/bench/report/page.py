"""A benchmark as one HTML page that needs nothing beside it: no network, no fonts, no scripts."""

from base64 import b64encode

from specx.bench.report import figures
from specx.bench.report.findings import Figure
from specx.bench.report.numbers import count, numeric_columns, show
from specx.bench.report.report import BenchReport
from specx.bench.report.styles import styles_of
from specx.reports.json_lines import to_json_folded
from specx.reports.templates import Palette, templates


def to_page(report: BenchReport, raw: str) -> str:
    """Write the page. ``raw``: name of the JSON file beside it, which holds the runs."""
    environment = templates("specx.bench.report")
    environment.filters |= {"show": show, "json": to_json_folded, "numeric": numeric_columns}
    styles = styles_of(report.figures)

    def image(figure: Figure, palette: Palette) -> str:
        """Draw a figure, as the address of an image."""
        svg = figures.to_svg(figures.draw(figure, styles, palette))
        return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"

    return environment.get_template("page.html.j2").render(
        report=report,
        raw=raw,
        styles=styles,
        count=count,
        image=image,
        describe=figures.describe,
        is_empty=figures.is_empty,
    )
