"""Pages that people read: links resolve, commands are one line, tables are those of the code."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("specx/**/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield file and anchor of every relative link of a page."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not target.startswith(("https://", "http://")):
            path, _, anchor = target.partition("#")
            yield (page.parent / path if path else page), anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of headings, and those written out."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for file, anchor in links(page):
        assert file.exists(), f"{page}: {file}"
        assert not anchor or anchor in anchors(file), f"{page}: {file}#{anchor}"


@pytest.mark.parametrize("name", ["summarize", "test"])
def test_each_command_of_the_readme_is_one_line(name: str) -> None:
    block = README.split(f"<!-- command: {name} -->\n```sh\n")[1].split("```")[0]
    assert block.count("\n") == 1
    assert "-c constraints.txt" in block


def test_the_readme_has_the_memory_of_each_profile() -> None:
    table = runpy.run_path(str(ROOT / "docs" / "memory_table.py"))["table"]
    assert table() in README, "run: python docs/memory_table.py"
