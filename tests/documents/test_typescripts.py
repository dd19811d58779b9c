"""Texts that were set for paper."""

import pytest

from specx.documents.document import Document
from specx.documents.plain import document_from_text
from specx.documents.typescripts import typescript
from specx.errors import DocumentError

_LINES = [
    "The mill stands at the end of the valley, and nobody has",
    "worked in it for years. In spring a man came from the",
    "town and bought it for a sum that the whole village found",
    "absurd. He said little, and he paid in gold that was old",
    "and worn. By summer the wheel turned again, and farmers",
    "brought their corn, their stories, and their questions to",
    "the man who had mended the wheel and said no word about",
    "himself. In autumn he was gone, and the wheel stood still.",
]


def read(text: str) -> Document:
    return document_from_text(text, "a.txt", "text")


def test_heads_of_pages_are_no_text_and_sentences_go_on() -> None:
    pages = [
        f"RFC 99   The Mill   May 2025\n\n{a}\n{b}\n\nAuthor   [Page {n}]\n"
        for n, (a, b) in enumerate(zip(_LINES[::2], _LINES[1::2], strict=True), start=1)
    ]
    document = read("\f".join(pages))
    assert [each.text for each in document.paragraphs] == [" ".join(_LINES)]
    assert document.paragraphs[0].lines == (3, 22)
    assert len(document.furniture) == 8
    assert document.furniture[0].lines == (1, 1)


def test_a_page_that_ends_with_a_sentence_ends_a_paragraph() -> None:
    towns = ("Elm", "Oak", "Ash", "Yew")
    texts = [f"The mill of {town} stands in its valley. Nobody works in it." for town in towns]
    pages = [f"The Mills\n\n{text}\n\n{n}\n" for n, text in enumerate(texts, start=1)]
    assert [each.text for each in read("\f".join(pages)).paragraphs] == texts


def test_line_numbers_of_court_paper_are_no_text() -> None:
    numbered = [f"{n % 8 + 1:>2}     {line}" for n, line in enumerate(_LINES * 2)]
    document = read("\n".join(numbered))
    assert " ".join(each.text for each in document.paragraphs) == " ".join(_LINES * 2)
    assert document.paragraphs[0].lines is not None


def test_numbers_inside_a_line_of_court_paper_stay() -> None:
    head = "Case 21   Document 31   Filed"
    numbered = [f"{n % 8 + 1:>2}     {line}" for n, line in enumerate(_LINES * 2)]
    assert head.replace("   ", " ") in read("\n".join([head, *numbered])).paragraphs[0].text


def test_short_pages_of_court_paper_have_line_numbers() -> None:
    pages = [
        f"The Mill v. Holm   Page {page}\n\n"
        + "".join(f"{n}     {line}\n\n" for n, line in enumerate(lines, start=1))
        + f"{' ' * 30}{page}\n"
        for page, lines in enumerate((_LINES[:3], _LINES[3:6], _LINES[6:], _LINES), start=1)
    ]
    document = read("\f".join(pages))
    assert " ".join(each.text for each in document.paragraphs) == " ".join(_LINES * 2)


def test_double_spacing_of_a_text_in_capitals_separates_no_paragraphs() -> None:
    lines = [line.upper() for line in _LINES]
    lines[2:3] = [f"{lines[2].removesuffix('LAGE FOUND')}¬", "LAGE FOUND"]
    document = read("\n\n".join(lines))
    assert " ".join(each.text for each in document.paragraphs) == " ".join(_LINES).upper()
    titles = "\n\n".join(f"CHAPTER {n}: THE WHEEL OF THE MILL" for n in "ABCDEFGH")
    assert len(read(titles).paragraphs) == 8


def test_wide_spaces_begin_paragraphs_and_set_labels_off() -> None:
    text = "日時　十月四日\n場所　水車小屋\n一　水車の補修\n"
    text += "　水車が沈下し、動かなくなって\nいる。\n　補修を決定した。"
    texts = [
        "日時 十月四日",
        "場所 水車小屋",
        "一 水車の補修",
        "水車が沈下し、動かなくなっている。",
        "補修を決定した。",
    ]
    assert [each.text for each in read(text).paragraphs] == texts
    assert read(text).paragraphs[3].lines == (4, 5)


def test_signs_of_quotation_are_no_text() -> None:
    text = "\n".join([*(f"> {line}" for line in _LINES), ">", *(f"> > {x}" for x in _LINES)])
    document = read(f"Ann wrote:\n{text}")
    whole = " ".join(_LINES)
    assert [each.text for each in document.paragraphs] == ["Ann wrote:", whole, whole]
    assert document.paragraphs[1].lines == (2, 9)
    assert read(">>> 1 + 1\n2\n" * 3).paragraphs[0].text.startswith(">>>")


def test_rows_with_numbers_stay() -> None:
    rows = "\n".join(f"{n:>2}     Town number {n} of the list" for n in range(1, 16))
    assert "15 Town number 15" in read(rows).paragraphs[-1].text


def test_notes_at_the_foot_of_pages_stand_behind_the_text() -> None:
    notes = ["8 See the old book of mills.", "9 Ibid.", "15 So said Ann.", "* No."]
    pairs = zip(_LINES[::2], _LINES[1::2], notes, strict=True)
    pages = [f"{a}\n{b}\n\n  ——————\n  {note}\n" for a, b, note in pairs]
    found = [(each.kind, each.text) for each in read("\f".join(pages)).paragraphs]
    assert found == [("text", " ".join(_LINES)), *(("footnote", each) for each in notes)]


def test_numbers_of_pages_that_begin_anew() -> None:
    pages = [
        f"{n % 4 + 1}   MILL v. DAM\n\n   Opinion of the Court\n\n{_LINES[n]}\n" for n in range(8)
    ]
    document = read("\f".join(pages))
    assert [each.text for each in document.paragraphs] == [" ".join(_LINES)]
    assert len(document.furniture) == 16


def test_pages_of_nothing_but_heads_are_kept() -> None:
    assert [each.text for each in read("\f".join(f"{n}" for n in range(9))).paragraphs]
    heads = read("\f".join(f"The Mill\n\n  ----\n {n} A note.\n" for n in range(9)))
    assert "The Mill" in [each.text for each in heads.paragraphs]


def test_a_text_of_short_lines_is_read_in_time() -> None:
    assert len(read("x\n" * 100_000).paragraphs[0].text) == 199_999  # in 3 s, not in 80


def test_numbers_in_a_line_without_a_number_stay() -> None:
    numbered = [f"{n:>2}  {line}" for n, line in enumerate(_LINES * 2, start=1)]
    text = "\n".join(["Case 21   Document 31   Filed", "", *numbered])
    assert read(text).paragraphs[0].text == "Case 21 Document 31 Filed"


def test_capitals_with_a_blank_line_behind_each_line() -> None:
    text = "\n\n".join(line.upper() for line in _LINES).replace("BROUGHT", "BROU¬\n\nGHT")
    assert [each.text for each in read(text).paragraphs] == [" ".join(_LINES).upper()]


def test_short_lines_behind_double_spacing_stay_apart() -> None:
    poem = "Apples\nPears\n\nRoses are red\n\nviolets are blue\n\nSugar is sweet"
    texts = [each.text for each in read("\n\n".join(_LINES) + f"\n\n\n\n{poem}").paragraphs]
    assert texts[0] == " ".join(_LINES)
    assert texts[-3:] == ["Roses are red", "violets are blue", "Sugar is sweet"]


def test_columns_of_prose_are_read_one_after_the_other() -> None:
    words = [
        "the",
        "miller",
        "of",
        "the",
        "upper",
        "weir,",
        "who",
        "had",
        "built",
        "it",
        "of",
        "stone,",
        "asked",
        "for",
        "a",
        "loan",
        "of",
        "corn",
    ]
    left = [" ".join(words[n % 7 : n % 7 + 5]) for n in range(12)]
    right = [" ".join(words[n % 5 + 6 : n % 5 + 11]) for n in range(12)]
    text = "\n".join(f"{one:<40}{other}" for one, other in zip(left, right, strict=True))
    lines = [line for line in typescript(text).lines if line.text]
    assert [line.text for line in lines] == [*left, *right]
    assert [line.number for line in lines] == [*range(1, 13)] * 2
    table = "\n".join(f"{'Corn ' + str(n):<40}{n} pounds" for n in range(12))
    assert len(typescript(table).lines) == 12


def test_terms_and_what_they_mean_are_read_across() -> None:
    terms = ("weir that holds water", "mill at the river side", "owner of the whole mill") * 4
    text = "\n".join(f"{term:<30}{LEFT[n]}" for n, term in enumerate(terms))
    assert [line.number for line in typescript(text).lines] == [*range(1, 13)]


def test_commas_within_lines_tell_columns_of_prose() -> None:
    left = ["the miller, who had no corn left", "had asked the abbot for the loan"] * 6
    right = [each.replace("the", "all") for each in left]
    text = "\n".join(f"{a:<36}{b}" for a, b in zip(left, right, strict=True))
    assert typescript(text).lines[1].number == 2
    assert typescript(text).lines[1].text == left[1]


LEFT = (
    "the miller of the upper weir who had",
    "built it of stone asked the abbot for",
    "a loan of corn until the next harvest,",
    "and the abbot gave it to him at once.",
) * 3
RIGHT = (
    "in the year of the flood the weir was",
    "carried away with the house and all of",
    "the corn, so that nobody could bake in",
    "that winter. The abbot asked for nothing.",
) * 3


def test_ragged_columns_are_told_apart_on_each_page() -> None:
    rows = [f"{a:<{42 + n % 3}}{b}" for n, (a, b) in enumerate(zip(LEFT, RIGHT, strict=True))]
    page = "\n".join(["        THE WEIR", "", *rows, "", f"{'':30}1"])
    last = "\n".join(["", *rows[:4], "", f"{'':30}2"])  # too few lines to prove a gutter
    document = document_from_text(f"{page}\f{last}", "a", "text")
    texts = [each.text for each in document.paragraphs]
    assert texts[0] == "THE WEIR"
    assert "at once. the miller" in texts[1]
    assert not any("had in the year" in each for each in texts)


def test_a_column_goes_on_beside_the_blank_lines_of_another() -> None:
    rows = [f"{a:<42}{b}" for a, b in zip(LEFT, RIGHT, strict=True)]
    text = "\n".join([*rows, "", f"{'who':<42}", f"{'':<42}It stands.", "came back."])
    lines = [each.text for each in typescript(text).lines if each.text]
    assert lines[:12] == [*LEFT]
    assert lines[12:14] == ["who", "came back."]
    assert lines[14:] == [*RIGHT, "It stands."]


def test_columns_that_run_into_each_other_are_refused() -> None:
    rows = [f"{a:<42}{b}" for a, b in zip(LEFT, RIGHT, strict=True)]
    rows.insert(5, f"{LEFT[0]} as an old book says {RIGHT[0]}")
    with pytest.raises(DocumentError, match="run into each other"):
        document_from_text("\n".join(rows), "a", "text")


def test_a_sentence_over_two_columns_has_a_range_of_lines() -> None:
    rows = [f"{a:<42}{b}" for a, b in zip([*LEFT[:11], "so that"], RIGHT, strict=True)]
    place = document_from_text("\n".join(rows), "a", "text").places[-1]
    assert place.lines == (1, 12)


def test_the_sides_of_a_frame_are_no_text() -> None:
    text = "╔════════════╗\n║  THE  WEIR ║\n╚════════════╝\n\nIt fell in May.\n\n│ a │ b │"
    texts = [(each.kind, each.text) for each in read(text).paragraphs]
    assert texts == [("heading", "THE WEIR"), ("text", "It fell in May."), ("text", "│ a │ b │")]
