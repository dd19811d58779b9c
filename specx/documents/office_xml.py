"""Move text that pandoc skips in a DOCX or ODT (boxes, fields, controls) to where pandoc reads.

A part that is not XML is returned unchanged; pandoc reports the error.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

CHUNK = "\ue000chunk{}\ue000"  # a paragraph that stands for a document in the document
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_LEFT_OUT = frozenset({"del", "moveFrom", "rt", "rubyPr", "sdtPr", "customXmlPr", "smartTagPr"})
_WRAPPERS = frozenset(
    {"fldSimple", "ins", "moveTo", "customXml", "smartTag", "sdt", "sdtContent", "ruby", "rubyBase"}
    | {"bdo", "dir"}
)
_RENAMED = {"cr": "br", "dstrike": "strike"}
_HEAD_LETTERS = 100
_LONGEST_SPAN, _MOST_COLUMNS = 3, 63  # digits of a number of columns; columns of Word
_NO = ("0", "false", "off")
_HEADING, _BODY = "specx-heading", "9"  # a style; the level of text that heads nothing
_TITLE = re.compile(r"\w.{0,78}[^\W_]")


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _value(element: ET.Element | None, key: str = "val") -> str | None:
    """Return an attribute in any namespace."""
    attributes = {} if element is None else element.attrib
    return next((v for k, v in attributes.items() if k.rpartition("}")[2] == key), None)


def _first(element: ET.Element, name: str) -> ET.Element | None:
    return next((each for each in element.iter() if _name(each) == name), None)


def parsed(xml: bytes) -> ET.Element | None:
    """Return the root of an XML text, which keeps its prefixes when it is written again."""
    events = ET.iterparse(io.BytesIO(xml), events=["start-ns"])
    with suppress(ET.ParseError, LookupError, ValueError):  # encodings that nobody knows, too
        for _, (prefix, address) in events:
            with suppress(ValueError):  # such as ns0, which it gives itself
                ET.register_namespace(prefix, address)
        root: ET.Element = events.root  # type: ignore[attr-defined]
        return root
    return None


def _letters(texts: Iterable[str]) -> int:
    return sum(map(str.isalnum, "".join(texts)))


# ---------------------------------------------------------------- DOCX


class Styles(NamedTuple):
    """The ids of a DOCX's styles that hide their text, and of those that have a heading's level."""

    hidden: frozenset[str | None] = frozenset()
    outlined: frozenset[str | None] = frozenset()


def word_styles(xml: bytes) -> tuple[bytes, Styles]:
    """Return the styles of a DOCX with an additional one, for headings; and those to look for."""
    if (root := parsed(xml)) is None:
        return xml, Styles()
    hidden, outlined = set[str | None](), set[str | None]()
    for style in (each for each in root if _name(each) == "style"):
        name, above = _value(style, "styleId"), _value(_first(style, "basedOn"))
        if (vanish := _first(style, "vanish")) is not None and _value(vanish) not in _NO:
            hidden.add(name)
        level = _value(_first(style, "outlineLvl")) or ("0" if above in outlined else _BODY)
        if level < _BODY and _first(style, "numPr") is None:
            outlined.add(name)
    heading = ET.SubElement(root, f"{{{_WORD}}}style", {f"{{{_WORD}}}type": "paragraph"})
    heading.set(f"{{{_WORD}}}styleId", _HEADING)
    ET.SubElement(heading, f"{{{_WORD}}}name", {f"{{{_WORD}}}val": "heading 1"})
    return ET.tostring(root, "utf-8"), Styles(frozenset(hidden), frozenset(outlined))


def word_part(
    xml: bytes, linked: Mapping[str, bytes], styles: Styles | None = None
) -> tuple[bytes, int, dict[str, bytes]]:
    """Return a part of a DOCX for pandoc, its number of letters, and its embedded documents.

    ``linked``: the documents and diagrams that the part links to, by their ids.
    """
    root = parsed(xml)
    if root is None:
        return xml, 0, {}
    part = _WordPart(linked, styles or Styles())
    root[:] = part.content(root, [])
    letters = _letters(each.text or "" for each in root.iter() if _name(each) == "t")
    hidden = sum(_letters([key]) for key in part.chunks)
    return ET.tostring(root, "utf-8"), letters - hidden, part.chunks


def with_heads(xml: bytes, heads: Iterable[bytes]) -> tuple[bytes, int]:
    """Add the text of page headers to a DOCX without text; return the XML and its letter count.

    A header with few letters is not added; it is only a letterhead or a page number.
    """
    root = parsed(xml)
    body = None if root is None else _first(root, "body")
    if root is None or body is None:
        return xml, 0
    for head in dict.fromkeys(heads):
        part, letters, _ = word_part(head, {})
        found = parsed(part)
        if found is not None and letters >= _HEAD_LETTERS:
            body[:0] = list(found)
    texts = (each.text or "" for each in body.iter() if _name(each) == "t")
    return ET.tostring(root, "utf-8"), _letters(texts)


@dataclass
class _WordPart:
    linked: Mapping[str, bytes]
    styles: Styles
    chunks: dict[str, bytes] = field(default_factory=dict)
    fields: list[bool] = field(default_factory=list)

    def content(self, element: ET.Element, moved: list[ET.Element]) -> list[ET.Element]:
        """Return an element's children; ``moved`` receives what has to follow the paragraph."""
        found: list[ET.Element] = []
        for child in element:
            found += self._replaced(child, moved)
        return found

    def _replaced(self, child: ET.Element, moved: list[ET.Element]) -> list[ET.Element]:
        name = _name(child)
        style = _first(child[0], "pStyle") if name == "p" and len(child) else None
        if _is_unseen(child, name) or _value(style) in self.styles.hidden:
            return []
        if name == "AlternateContent":
            return self.content(_alternative(child), moved)
        if name in _WRAPPERS:
            return self.content(child, moved)
        if name == "txbxContent":
            moved += self.content(child, moved)
            return []
        if name == "relIds":  # of a diagram
            moved += _diagram(self.linked.get(_value(child, "dm") or "", b""))
            return []
        if name == "altChunk":
            return self._chunk(self.linked.get(_value(child, "id") or ""))
        behind: list[ET.Element] = []
        if name == "p":
            self.fields = [True for _ in self.fields]  # no instruction goes on in the next one
        elif name == "fldChar":
            self._pass_mark(_value(child, "fldCharType"))
        elif name == "t" and not all(self.fields):
            return []
        elif name in _RENAMED:
            child.tag = f"{{{_WORD}}}{_RENAMED[name]}"
        content = self.content(child, behind if name == "p" else moved)
        if name == "r":  # what a ruby has put into it
            behind = [each for each in content if _name(each) == "r"]
        child[:] = [each for each in content if name != "r" or each not in behind]
        if name == "tbl":
            _complete(child)
        elif name == "p":
            self._head(child, style)
        chosen = _chosen(child) if name == "r" else None
        return [*([_run(chosen)] if chosen else []), child, *behind]

    def _head(self, paragraph: ET.Element, style: ET.Element | None) -> None:
        """Give a short paragraph with a heading's level a style that pandoc knows.

        Numbered paragraphs of judgments and contracts have such levels, too.
        """
        own = _first(paragraph[0], "outlineLvl") if len(paragraph) else None
        text = "".join(each.text or "" for each in paragraph.iter() if _name(each) == "t").strip()
        is_outlined = (_value(own) or _BODY) < _BODY or _value(style) in self.styles.outlined
        if is_outlined and _TITLE.fullmatch(text) and _first(paragraph, "numPr") is None:
            if style is None:
                style = ET.SubElement(paragraph[0], f"{{{_WORD}}}pStyle")
            style.set(f"{{{_WORD}}}val", _HEADING)

    def _pass_mark(self, mark: str | None) -> None:
        """Record where a field begins, where its instruction ends, and where its result ends."""
        if mark == "begin":
            self.fields.append(False)
        elif self.fields:
            self.fields[-1:] = [True] if mark == "separate" else []

    def _chunk(self, data: bytes | None) -> list[ET.Element]:
        if data is None:
            return []
        key = CHUNK.format(len(self.chunks))
        self.chunks[key] = data
        return [_paragraph(key)]


def _complete(table: ET.Element) -> None:
    """Give a table all its columns: pandoc drops cells beyond its grid and beyond its first row."""
    rows = [[cell for cell in row if _name(cell) == "tc"] for row in table if _name(row) == "tr"]
    table[:] = [each for each in table if _name(each) != "tr" or "tc" in map(_name, each)]
    rows = [row for row in rows if row]
    widths = [sum(map(_span, row)) for row in rows]
    most = min(max(widths, default=0), _MOST_COLUMNS)
    grid = next((each for each in table if _name(each) == "tblGrid"), None)
    if grid is None:
        grid = ET.Element(f"{{{_WORD}}}tblGrid")
        table.insert(0, grid)
    if len(grid) < most:
        column = ET.Element(f"{{{_WORD}}}gridCol", {f"{{{_WORD}}}w": "100"})
        grid[:] = [column] * most
    if widths and widths[0] < most:
        last = rows[0][-1]
        width = str(_span(last) + most - widths[0])
        if (look := next((each for each in last if _name(each) == "tcPr"), None)) is None:
            last.insert(0, look := ET.Element(f"{{{_WORD}}}tcPr"))
        look[:] = [each for each in look if _name(each) != "gridSpan"]
        ET.SubElement(look, f"{{{_WORD}}}gridSpan", {f"{{{_WORD}}}val": width})


def _span(cell: ET.Element) -> int:
    look = next((each for each in cell if _name(each) == "tcPr"), None)
    width = _value(None if look is None else _first(look, "gridSpan")) or "1"
    return int(width) if width.isdecimal() and len(width) < _LONGEST_SPAN else 1


def _is_unseen(element: ET.Element, name: str) -> bool:
    """Return True for deleted or hidden text, and for placeholders to be filled in."""
    if name in _LEFT_OUT:
        return len(element) > 0 or name != "del"  # an empty one is the mark of a paragraph
    if name == "sdt":
        return any(_name(each) == "showingPlcHdr" for own in element[:1] for each in own)
    if name != "r":
        return False
    look = (each for own in element[:1] if _name(own) == "rPr" for each in own)
    return any(_name(each) == "vanish" and _value(each) not in _NO for each in look)


def _alternative(element: ET.Element) -> ET.Element:
    """Return the first alternative that has text; without any text, the first alternative."""
    worded = (
        each
        for each in element
        if any(_name(x) in ("t", "relIds", "altChunk") for x in each.iter())
    )
    return next(worded, element[0] if len(element) else element)


def _chosen(run: ET.Element) -> str | None:
    """Return the selected entry if a drop-down field begins in a run, or a box to tick."""
    if (tick := _first(run, "checkBox")) is not None:
        states = {_name(each): _value(each) or "true" for each in tick}
        return "☐ " if states.get("checked", states.get("default", "0")) in _NO else "☒ "
    box = _first(run, "ddList")
    if box is None:
        return None
    entries = [_value(each) or "" for each in box if _name(each) == "listEntry"]
    numbers = {_name(each): _value(each) or "" for each in box}
    number = numbers.get("result", numbers.get("default", "0"))
    return entries[int(number)] if number.isdecimal() and int(number) < len(entries) else None


def _diagram(xml: bytes) -> list[ET.Element]:
    root = parsed(xml) if xml else None
    paragraphs = [] if root is None else [each for each in root.iter() if _name(each) == "p"]
    texts = ("".join(x.text or "" for x in each.iter() if _name(x) == "t") for each in paragraphs)
    return [_paragraph(text) for text in texts if text.strip()]


def _paragraph(text: str) -> ET.Element:
    paragraph = ET.Element(f"{{{_WORD}}}p")
    paragraph.append(_run(text))
    return paragraph


def _run(text: str) -> ET.Element:
    run = ET.Element(f"{{{_WORD}}}r")
    ET.SubElement(run, f"{{{_WORD}}}t").text = text
    return run


# ---------------------------------------------------------------- ODT

_OPEN = "urn:oasis:names:tc:opendocument:xmlns:"
_TEXT, _DRAW = f"{{{_OPEN}text:1.0}}", f"{{{_OPEN}drawing:1.0}}"
_BLOCKS = frozenset(
    {f"{_TEXT}{name}" for name in ("p", "h", "list")} | {f"{{{_OPEN}table:1.0}}table"}
)
_LINES = frozenset(f"{_TEXT}{name}" for name in ("p", "h", "span", "a"))
_READ = frozenset(  # in a line; anything else there is a field
    f"{_TEXT}{name}"
    for name in (
        *("span", "a", "s", "tab", "line-break", "note", "bookmark", "bookmark-start"),
        *("bookmark-end", "bookmark-ref", "reference-mark-start", "reference-mark-end"),
    )
)
_ASIDE = frozenset({"tracked-changes", "annotation", "annotation-end", "ruby-text", "hidden-text"})


def open_text(xml: bytes) -> tuple[bytes, int]:
    """Return the content of an ODT for pandoc, and its number of letters."""
    root = parsed(xml)
    if root is None:
        return xml, 0
    _mark_hidden(root)
    _settle(root, [])
    body = _first(root, "body")
    return ET.tostring(root, "utf-8"), _letters([] if body is None else body.itertext())


def _mark_hidden(root: ET.Element) -> None:
    """Give hidden elements a tag that readers skip."""
    unseen = {
        _value(style, "name")
        for style in root.iter()
        if _name(style) == "style" and any(_value(look, "display") == "none" for look in style)
    }
    for each in root.iter():
        sign = each.find(f"{_TEXT}hidden-paragraph")
        if (
            (_name(each) == "section" and _value(each, "display") == "none")
            or (each.tag in _LINES and _value(each, "style-name") in unseen)
            or (sign is not None and _value(sign, "is-hidden") == "true")
        ):
            each.tag = "hidden-text"


def _settle(element: ET.Element, moved: list[ET.Element]) -> None:
    """Rewrite the children of an element; ``moved`` receives the blocks of frames inside a line."""
    children, element[:] = list(element), []
    for child in children:
        tail, child.tail = child.tail or "", None
        in_line = element.tag in _LINES
        if child.tag.startswith(_DRAW):
            blocks = _boxed(child)
            (moved if in_line else element).extend(blocks)
        elif _name(child) in _ASIDE:
            pass
        elif in_line and child.tag not in _READ:
            _settle(child, moved)
            append_text(element, "".join(child.itertext()))
        elif child.tag == f"{_TEXT}section":
            _settle(child, moved)
            element.extend(list(child))
        else:
            behind: list[ET.Element] = []
            _settle(child, moved if in_line else behind)
            element.extend([child, *behind])
        append_text(element, tail)


def _boxed(element: ET.Element) -> list[ET.Element]:
    """Return the blocks of text in a frame or shape, and in nested ones."""
    found: list[ET.Element] = []
    for child in element:
        if child.tag in _BLOCKS:
            behind: list[ET.Element] = []
            child.tail = None
            _settle(child, behind)
            found += [child, *behind]
        else:
            found += _boxed(child)
    return found


def append_text(element: ET.Element, text: str) -> None:
    """Add text at the end of an element's content."""
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
