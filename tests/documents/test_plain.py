from specx.documents.document import Kind
from specx.documents.plain import document_from_text


def paragraphs(text: str, kind: Kind = "text") -> list[str]:
    document = document_from_text(text, "a.txt", kind)
    assert all(paragraph.page is None for paragraph in document.paragraphs)
    return [paragraph.text for paragraph in document.paragraphs]


def test_wrapped_lines_are_joined_and_blank_lines_separate() -> None:
    text = "The first para-\ngraph is wrapped\nover lines.\n\n\nThe second is not.\n"
    assert paragraphs(text) == ["The first paragraph is wrapped over lines.", "The second is not."]


def test_long_lines_are_paragraphs() -> None:
    line = "A sentence that is part of a line which was never wrapped at any margin. " * 3
    assert paragraphs(f"{line}\n{line}\n") == [line.strip()] * 2


def test_one_line_of_70000_characters() -> None:
    text = "The agency reported a finding on this matter in the year 2015. " * 1100
    found = paragraphs(text)
    assert " ".join(found) == text.strip()
    assert all(len(paragraph) <= 300 for paragraph in found)


def test_markdown_headings_lists_and_tables() -> None:
    text = (
        "# Title\nText of the\nparagraph.\n- one\n- two\n  goes on\n\n| a | b |\n|---|---|\nEnd.\n"
    )
    assert paragraphs(text, "markdown") == [
        "# Title",
        "Text of the paragraph.",
        "one",
        "two goes on",
        "| a | b |",
        "|---|---|",
        "End.",
    ]


def test_text_without_letters_is_kept() -> None:
    assert paragraphs("---\n") == ["---"]
