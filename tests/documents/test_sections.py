import pytest

from specx.documents.document import Paragraph, ParagraphKind, Part
from specx.documents.sections import mark_parts

TEXT = "The council met on a Monday and decided to close the old bridge for a year."
MORE = "Nobody was glad of it, for the next bridge over the river is eight kilometres away."
BODY = [Paragraph(TEXT, 3), Paragraph(MORE, 3), Paragraph(TEXT, 4), Paragraph(MORE, 4)] * 3
NOTICE = (
    "This manual is free software; you may redistribute it and/or modify it under the terms of "
    "the GNU General Public License."
)


def heading(text: str, page: int = 5) -> Paragraph:
    return Paragraph(text, page, "heading")


def parts(*paragraphs: Paragraph, prominence: list[float] | None = None) -> list[Part]:
    return [p.part for p in mark_parts(paragraphs, prominence)]


def test_a_notice_of_copyright_is_told_anywhere() -> None:
    assert parts(Paragraph(NOTICE, 4), *BODY) == ["copyright"] + ["body"] * len(BODY)
    assert set(parts(*BODY, Paragraph("The licence allows to modify the bridge.", 4))) == {"body"}


def test_a_page_of_copyright_goes_whole() -> None:
    examples = Paragraph("This manual was made with these two as examples, and with thanks.", 2)
    page = [Paragraph("Copyright © 2020 The Council", 2), Paragraph(NOTICE, 2), examples]
    assert parts(*page, *BODY) == ["copyright"] * 3 + ["body"] * len(BODY)


@pytest.mark.parametrize(
    "title", ["Appendix A GNU Free Documentation License", "License", "Copyright and Licence"]
)
def test_a_licence_goes_to_the_next_heading_of_its_level(title: str) -> None:
    licence = [
        heading(title),
        Paragraph("Everyone is permitted to copy and distribute verbatim copies.", 5),
        heading("0. PREAMBLE"),
        Paragraph("The purpose of this License is to make a manual free for everyone to use.", 5),
        heading("Appendix B Bridges", 6),
    ]
    found = parts(
        *BODY, *licence, *BODY, prominence=[0.0] * len(BODY) + [20, 0, 14, 0, 20] + [0] * 12
    )
    assert found == ["body"] * len(BODY) + ["copyright"] * 4 + ["body"] * (1 + len(BODY))


def test_a_section_about_licences_is_text() -> None:
    about = [heading("Licensing"), Paragraph("Drivers need a licence, which the town gives.", 5)]
    assert set(parts(*BODY, *about, *BODY)) == {"body"}


def test_reference_lists_go_to_the_next_heading() -> None:
    items: list[ParagraphKind] = ["item", "text"]
    entries = [
        Paragraph(f"[{n}] A. Author: A title. 20{n}1.", 5, items[n % 2]) for n in range(1, 5)
    ]
    found = parts(*BODY, heading("7 References"), *entries, heading("Appendix A Bridges"), *BODY)
    assert found[len(BODY) :][:6] == ["references"] * 5 + ["body"]
    assert parts(*BODY, Paragraph("REFERENCES", 5), *entries)[-5:] == ["references"] * 5


def test_an_index_goes_on_over_its_letters() -> None:
    index = [heading("Concept Index"), heading("A"), Paragraph("arch, 12, 45", 5), heading("B")]
    assert parts(*BODY, *index)[-4:] == ["index"] * 4


def test_a_price_index_is_text() -> None:
    assert set(parts(*BODY, heading("Consumer Price Index"), *BODY)) == {"body", "index"}
    assert parts(*BODY, heading("Consumer Price Index"), *BODY).count("index") == 1


def test_entries_below_an_index_are_no_contents() -> None:
    entry = Paragraph("arch 12", 5, "item", "contents")
    assert parts(heading("Contents", 1), entry, *BODY, heading("Index"), entry) == [
        *["contents"] * 2,
        *["body"] * len(BODY),
        *["index"] * 2,
    ]


def test_contents_without_dots_go_to_the_text() -> None:
    contents = [heading("Contents", 2), heading("1 Bridges 3", 2), Paragraph("1.1 Arches 4", 2)]
    found = parts(*contents, heading("1 Bridges", 3), *BODY)
    assert found == ["contents"] * 3 + ["body"] * (1 + len(BODY))


def test_title_pages_are_pages_without_text_before_it() -> None:
    title = [heading("The Bridge", 1), Paragraph("A. Author", 1), heading("The Bridge", 2)]
    assert parts(*title, *BODY) == ["title"] * 3 + ["body"] * len(BODY)
    assert parts(heading("The Bridge", 3), *BODY)[0] == "body"
    assert set(parts(*title)) == {"body"}


def test_a_document_that_is_a_licence_or_a_list_of_references_is_read() -> None:
    licence = [heading("GNU General Public License", 1), *[Paragraph(NOTICE, 1)] * 5]
    assert set(parts(*licence)) == {"body"}
    entries = [Paragraph(f"[{n}] A. Author: A title. 2021.", 1, "item") for n in range(9)]
    assert set(parts(heading("Bibliography", 1), *entries)) == {"body"}
