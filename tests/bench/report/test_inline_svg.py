"""Figures inside a page."""

import re
from xml.etree import ElementTree

import pytest

from specx.bench.report.findings import Figure
from specx.bench.report.inline_svg import describe, inline_svg
from specx.bench.report.palette import LIGHT, looks_of
from tests.bench.report.bench_examples import BARS, FEW, FIGURES, HOSTILE, MANY, METHODS, STACKED


def inline(figure: Figure) -> str:
    return inline_svg(figure.name, figure, looks_of(FIGURES))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_an_element_that_needs_nothing(figure: Figure) -> None:
    svg = inline(figure)
    assert ElementTree.fromstring(svg).tag == "svg"
    assert svg.startswith("<svg viewBox=")
    for absent in ("http", "xmlns", "<?xml", "<!DOCTYPE", "<style", "<metadata", "DejaVu"):
        assert absent not in svg
    assert svg == inline(figure)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_colour_is_a_variable(figure: Figure) -> None:
    svg = inline(figure)
    assert not re.findall(
        r"#[0-9a-fA-F]{3,8}\b(?!-)", re.sub(r'href="#[^"]*"|url\([^)]*\)', "", svg)
    )
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) <= LIGHT.variables().keys()
    used = {looks_of(FIGURES)[series.label].colour for series in figure.series}
    names = {colour: name for name, colour in LIGHT.variables().items()}
    assert all(f"var({names[colour]})" in svg for colour in used)


def test_ids_of_two_figures_differ_and_references_follow() -> None:
    few, stacked = inline(FEW), inline(STACKED)
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (few, stacked)]
    assert not ids[0] & ids[1]
    for svg, known in zip((few, stacked), ids, strict=True):
        references = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg))
        assert references
        assert {a or b for a, b in references} <= known


def test_it_is_read_aloud() -> None:
    root = ElementTree.fromstring(inline(MANY))
    title, desc = root[0], root[1]
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert (title.tag, title.text) == ("title", f"Speedup over plain, {HOSTILE}")
    assert (desc.tag, desc.text) == ("desc", describe(MANY))
    assert METHODS[-1] in [element.text for element in root.iter("text")]


def test_descriptions() -> None:
    assert describe(FEW).startswith("Lines: speedup by chunks. method-1: 1.10 at 1,024, 3.30 at")
    assert describe(MANY).startswith(
        "Lines: speedup by input, tokens. method-0: 1.00 at 1K, 3.00 a"
    )
    assert describe(STACKED) == (
        "Stacked bars: milliseconds by input, tokens. "
        "drafting: 1.00 at 1K, 2.00 at 4K, 3.00 at 16K. "
        "keep: 0.500 at 1K, 0.500 at 4K, 0.500 at 16K. "
        "host: 0.200 at 1K, 0.300 at 4K, 0.400 at 16K."
    )
    assert "prefill: 1.00 at method-0, 2.00 at method-1," in describe(BARS)
