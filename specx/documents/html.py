"""Prepare a web page for pandoc: repair it, drop what is not shown, mark what frames its text.

Runs in the child process.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from specx.documents.pandoc import FURNITURE

_NOT_SHOWN = (
    "script, style, noscript, template, iframe, object, canvas, svg, button, select, textarea, "
    "input, [hidden], [aria-hidden='true'], [style*='display:none'], [style*='display: none'], "
    "[role='search']"
)
_FRAME = "nav, footer, aside, header, [role='navigation'], [role='banner'], [role='contentinfo']"
_NOTE = frozenset({"doc-footnote", "doc-endnote", "doc-endnotes", "note"})
# pandoc reads nothing else of a page with <main>, and does not see the role of an <aside>.
_UNKNOWN = re.compile(r"<(/?)(?:main|aside)(?=[\s>])")
_TEXT = frozenset({"main", "article"})  # what these hold is text, a header or an aside, too


class WebPage(NamedTuple):
    """The page that is shown, and the number of its pictures."""

    html: str
    images: int


def prepare(text: str) -> WebPage:
    """Return a page whose frame (navigation, header, footer) stands at its end.

    It is in divisions of the class FURNITURE.
    """
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    try:
        page = LexborHTMLParser(text)
    except SelectolaxError as error:  # any text is a page, so there was no room for it
        raise MemoryError from error
    for node in page.css(_NOT_SHOWN):
        node.decompose()
    if page.html is None:  # the parser says nothing when there is no room
        raise MemoryError
    images = len(page.css("img"))
    frame = [node for node in page.css(_FRAME) if _frames(node)]
    framed = {node.mem_id for node in frame}
    outer = [node for node in frame if not any(up.mem_id in framed for up in _above(node))]
    taken = [f'<div class="{FURNITURE}">{node.inner_html}</div>' for node in outer]
    for node in outer:
        node.remove()
    return WebPage("\n".join([_UNKNOWN.sub(r"<\1div", page.html or ""), *taken]), images)


def _frames(node: Any) -> bool:
    """Return True for navigation, and for other parts of the frame outside the text."""
    if node.tag == "nav" or node.attributes.get("role") == "navigation":
        return True
    if node.attributes.get("role") in _NOTE or (node.tag == "header" and node.css_first("h1")):
        return False
    return not any(above.tag in _TEXT for above in _above(node))


def _above(node: Any) -> Iterator[Any]:
    """Yield the elements that a node stands in."""
    while (node := node.parent) is not None:
        yield node
