"""Pages as a real browser shows them: on a phone and a desk, light and dark.

Skipped without Chromium.
"""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from specx.documents.document import Paragraph
from specx.prompts.prompt import Quote
from specx.reports.index import index_page
from specx.reports.templates import DARK, LIGHT
from specx.reports.writers import report_files, report_text, write_text_atomic
from tests.places import places_of
from tests.reports.test_index import fail
from tests.reports.test_page import digest, lines_report, part

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LONG = "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerk" * 3
WIDTHS = (390, 1280)
PAGES = (
    "pdf.html",
    "text.html",
    "text.fulltext.html",
    "index.html",
    "text.fulltext.html#sentence-2",
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")

# Loads pages one after the other in a frame, and writes what it measures into the title.
MEASURE = """<!doctype html><title></title><body style="margin:0"><script>
const shown = %s, found = {};  // pairs of a width and a page
const measure = (page) => {
  const target = page.querySelector(":target");
  const links = [...page.querySelectorAll("a, summary")].filter(
    (each) => each.textContent.trim() && !each.closest(".strip") && each.getClientRects().length);
  return {
    wide: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    paper: getComputedStyle(page.body).backgroundColor,
    target: target ? target.getBoundingClientRect().top : null,
    small: links.filter((each) => each.getBoundingClientRect().height < 17).length,
  };
};
const show = (n) => {
  const [width, page] = shown[n], frame = document.createElement("iframe");
  frame.style.cssText = `border:0;width:${width}px;height:800px`;
  frame.onload = () => setTimeout(() => {
    found[`${page} at ${width}`] = measure(frame.contentDocument);
    frame.remove();
    n + 1 < shown.length ? show(n + 1) : (document.title = JSON.stringify(found));
  }, 200);
  frame.src = page;
  document.body.append(frame);
};
show(0);
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page that cites a PDF, one that cites a text, that text, and an index."""
    folder = tmp_path_factory.mktemp("pages")
    pdf, text = digest(), lines_report(f"{LONG}.txt")
    source = folder / "a.pdf"
    source.write_bytes(b"%PDF-")
    pdf.source, pdf.input = source, replace(pdf.input, title=LONG)
    pdf.levels = [[part("Part one.", (1, 12), None), part(LONG, (13, 20), None)]]
    pdf.warnings = [LONG, "page 4 has no text"]
    text.places = places_of(
        *[
            Paragraph(f"{LONG} {n}. First *sentence*. Second | sentence.", None, lines=(n, n))
            for n in range(1, 900)
        ]
    )
    begins = len(LONG) + len(" 3. ")
    first = replace(text.places[2], start=begins, end=begins + 17)
    second = replace(text.places[699], start=begins + 20, end=begins + 38)
    text.citations = [Quote(**vars(each), sentence=each.text) for each in (first, second)]
    for report, name in ((pdf, "pdf"), (text, "text")):
        data = folder / f"{name}.json"
        write_text_atomic(data, report_text(report, data))
        for path, content in report_files(report, folder / f"{name}.html").items():
            write_text_atomic(path, content)
    fail(folder, "bad.pdf", f"{LONG} is damaged")
    (folder / "index.html").write_text(index_page(folder, {PurePath("text")}))
    return folder


def measured(folder: Path, *, dark: bool) -> dict[str, dict[str, object]]:
    frame = folder / "frame.htm"
    frame.write_text(MEASURE % json.dumps([(width, page) for page in PAGES for width in WIDTHS]))
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"),
            *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000"),
            *(
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                "--window-size=1400,900",
            ),
            *("--dump-dom", frame.as_uri()),
        ],
        capture_output=True,
        check=True,
        text=True,
        timeout=100,
    )
    title = re.search("<title>(.*)</title>", done.stdout)
    assert title is not None
    found: dict[str, dict[str, object]] = json.loads(title[1])
    return found


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))})"


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_pages_fit_and_anchors_are_in_sight(folder: Path, palette: dict[str, str]) -> None:
    found = measured(folder, dark=palette is DARK)
    assert len(found) == len(PAGES) * len(WIDTHS)
    for page, seen in found.items():
        assert seen["wide"] == 0, page  # nothing to scroll sideways
        assert seen["paper"] == rgb(palette["--paper"]), page
        assert seen["small"] == 0, page  # links that no finger hits
    for width in WIDTHS:
        top = found[f"{PAGES[-1]} at {width}"]["target"]
        assert isinstance(top, float | int)
        assert 45 < top < 600  # below the bar that leads back
