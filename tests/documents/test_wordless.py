import base64
import random

import pytest

from specx.documents.document import Document, Paragraph
from specx.documents.prose import without_data, worded_spans
from specx.errors import DocumentError

PROSE = "The committee met in the old town hall and read the report of the harbour master. " * 20
DATA = base64.encodebytes(random.Random(1).randbytes(3000)).decode()


def kept(text: str) -> list[str]:
    return [text[start:end] for start, end in worded_spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a short text",
        PROSE.strip(),
        "Donaudampfschifffahrtsgesellschaft und Rindfleischetikettierung " * 20 + PROSE.strip(),
        "Revenue 1,204.50 1,310.75 998.20 12,400 19.3% N/A FY2019 (4.2) " * 30 + "end",
        "委员会在旧市政厅开会，阅读了港务局长的报告。" * 100,
        "คณะกรรมการประชุมที่ศาลากลางเก่า" * 100,
        "See https://example.org/" + "query=1&" * 50 + " for more",
        '<xsl:param name="slides.title"/> <xsl:value-of select="$size"/> </xsl:param> ' * 40
        + "</xsl:set>",
    ],
    ids=["empty", "short", "prose", "German", "table", "Chinese", "Thai", "address", "XML"],
)
def test_text_is_kept(text: str) -> None:
    assert kept(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        DATA.replace("\n", ""),
        DATA.replace("\n", " "),
        "function(e,t){return e&&t.push(n)} var a=function(){try{b()}catch(e){}};" * 40,
        ". " * 1000,
        "-" * 2000,
    ],
    ids=["letters", "base64", "wrapped base64", "minified", "dots", "dashes"],
)
def test_data_is_not(text: str) -> None:
    assert kept(text) == []


def test_text_around_data_stays() -> None:
    assert kept(f"Before it. {'x' * 3000} After it.") == ["Before it.", "After it."]


def test_any_document_loses_its_data_and_says_so() -> None:
    data = Paragraph(" ".join(DATA.split()), 2)
    document = Document("a.pdf", "pdf", (), (Paragraph(PROSE.strip(), 1), data), ("Told before.",))
    read = without_data(document)
    assert read.text == PROSE.strip()
    assert read.warnings[0] == "Told before."
    assert read.warnings[1].startswith(f"{len(data.text):,} characters that form no words")
    assert without_data(read) is read


def test_a_document_of_nothing_but_data_is_refused() -> None:
    document = Document("a.pdf", "pdf", (), (Paragraph(" ".join(DATA.split()), 1),))
    with pytest.raises(DocumentError, match=r"^a\.pdf holds nothing but [\d,]+ characters that"):
        without_data(document)
