"""Colours that everybody can tell apart."""

from itertools import combinations
from pathlib import Path

import pytest

from specx.reports.templates import DARK, LIGHT, SERIES, link

# What eyes see of linear RGB that lack the cones for long, middle or short waves
# (Machado, Oliveira, Fernandes 2009, severity 1.0).
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8727))  # white: 1
Vector = tuple[float, ...]


def linear(colour: str) -> Vector:
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return tuple(v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)


def times(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def lab(light: Vector) -> Vector:
    x, y, z = (
        v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116
        for v in times(TO_XYZ, tuple(min(max(v, 0), 1) for v in light))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(a: str, b: str, eye: tuple[Vector, ...]) -> float:
    seen = [lab(times(eye, linear(colour))) for colour in (a, b)]
    return sum((p - q) ** 2 for p, q in zip(*seen, strict=True)) ** 0.5


def contrast(a: str, b: str) -> float:
    low, high = sorted(times(TO_XYZ, linear(colour))[1] for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def series(palette: dict[str, str]) -> list[str]:
    return [palette[f"--series-{i}"] for i in range(SERIES)]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_series_differ_for_all_eyes(palette: dict[str, str], eye: str) -> None:
    assert min(difference(a, b, EYES[eye]) for a, b in combinations(series(palette), 2)) > 15


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(palette: dict[str, str]) -> None:
    """Lines 3 to 1, text 4.5 to 1 (WCAG 2.2)."""
    colours, paper = series(palette), palette["--paper"]
    assert min(contrast(colour, paper) for colour in colours) > 3
    assert contrast(paper, colours[0]) > 4.5  # numbers on marks
    assert contrast(paper, colours[1]) > 4.5  # and on those under the pointer
    for text in ("ink", "muted", "link"):
        assert contrast(palette[f"--{text}"], paper) > 4.5
        assert contrast(palette[f"--{text}"], palette["--surface"]) > 4.5
    for text in ("ink", "link"):  # of quoted passages, and the way back from them
        assert contrast(palette[f"--{text}"], palette["--mark"]) > 4.5


def test_both_schemes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert len(set(LIGHT.values())) == len(LIGHT)


@pytest.mark.parametrize(
    ("target", "page", "expected"),
    [
        ("/d/a.pdf", "/d/r.html", "a.pdf"),
        ("/d/a.pdf", "/d/out/x/r.html", "../../a.pdf"),
        ("/d/javascript:1 #?%\"'<.pdf", "/d/r.html", "javascript%3A1%20%23%3F%25%22%27%3C.pdf"),
        ("/d/caf\udce9/ü.txt", "/d/r.html", "caf%E9/%C3%BC.txt"),
    ],
)
def test_links(target: str, page: str, expected: str) -> None:
    assert link(Path(target), Path(page)) == expected


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert link(Path("../a.pdf"), Path("r.html")) == "../a.pdf"
    assert link(tmp_path / "a.pdf", Path("out/r.html")) == "../../a.pdf"
