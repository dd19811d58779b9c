"""The title of a document, as far as its first paragraphs tell it."""

import re
from collections.abc import Sequence
from itertools import islice

from specx.documents.document import Paragraph
from specx.errors import harmless

LONGEST_TITLE = 200  # characters
_WITHIN = 4  # paragraphs at the beginning, of which one may be the title
# Headings of sections, which stand in front where the title is not in the text.
_SECTION = re.compile(
    r"(?i)\W*(?:\d{1,2}(?:\.\d+)*[.:)]?\s.*|[ivxlc]+[.:)]\s.*|[\d\W]*"
    r"|(?:chapter|part|section|appendix|page)\b.{0,12}"
    r"|abstract|summary|executive summary|introduction|contents|preface|foreword|background"
    r"|acknowledge?ments?|notes?|references|licen[cs]e)\W*"
)


def title_of(paragraphs: Sequence[Paragraph]) -> str | None:
    """Return the title in one line, None if the text has none that can be told from a section's."""
    first = islice((p for p in paragraphs if p.part in ("body", "title")), _WITHIN)
    for paragraph in first:
        text = " ".join(harmless(paragraph.text).split())
        if paragraph.kind == "heading":
            fits = len(text) <= LONGEST_TITLE and not _SECTION.fullmatch(text)
            return text if fits else None
    return None
