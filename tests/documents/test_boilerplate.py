"""What publishers of free books put around them, and licences in other languages."""

from pathlib import Path

import pytest

from specx.documents.document import Paragraph
from specx.documents.formats import find_pandoc
from specx.documents.read import read_document
from specx.documents.sections import mark_parts
from tests.documents.offices import docx, epub, paragraph

STORY = [
    "Anna had been rowing since the morning, and the island was no nearer than before.",
    "The ferryman, who had watched her for an hour, lit his pipe and said nothing.",
    "In the evening the wind turned, and the boat went home by itself.",
] * 4
FRONT = [
    "The Project Gutenberg eBook of The Boat, by A. Nobody",
    "This eBook is for the use of anyone anywhere in the United States and most other parts of the "
    "world at no cost and with almost no restrictions whatsoever.",
    "You may copy it, give it away or re-use it under the terms of the licence included with it.",
    "Title: The Boat",
    "*** START OF THE PROJECT GUTENBERG EBOOK THE BOAT ***",
    "Produced by Some Person and the Online Distributed Proofreading Team.",
]
BACK = [
    "*** END OF THE PROJECT GUTENBERG EBOOK THE BOAT ***",
    "Updated editions will replace the previous one—the old editions will be renamed.",
    "Creating the works from print editions not protected by law means that no one owns a "
    "copyright in these works, so anyone may distribute them.",
]
FRENCH_FRONT = [
    "The Project Gutenberg EBook of La Barque, by A. Personne",
    "Title: La Barque",
    "Language: French",
    "*** START OF THIS PROJECT GUTENBERG EBOOK LA BARQUE ***",
    "Produit par Une Personne et l'équipe des relecteurs (ce fichier a été produit à partir "
    "d'images mises à disposition par une bibliothèque).",
]
FRENCH_BACK = ["End of the Project Gutenberg EBook of La Barque, by A. Personne", *BACK[:2]]


@pytest.mark.parametrize(("front", "back"), [(FRONT, BACK), (FRENCH_FRONT, FRENCH_BACK)])
def test_what_stands_around_a_book_is_no_text_of_it(front: list[str], back: list[str]) -> None:
    texts = [*front, *STORY, *back]
    found = [each.part for each in mark_parts([Paragraph(text, None) for text in texts])]
    expected = ["copyright"] * len(front) + ["body"] * len(STORY) + ["copyright"] * len(back)
    assert found == expected


def test_in_a_text_file(tmp_path: Path) -> None:
    file = tmp_path / "boat.txt"
    file.write_text("\n\n".join([*FRONT, *STORY, *BACK]))
    body = [each.text for each in read_document(str(file)).paragraphs if each.part == "body"]
    assert body == STORY


@pytest.mark.skipif(find_pandoc() is None, reason="needs the extra formats")
def test_in_other_formats(tmp_path: Path) -> None:
    texts = [*FRENCH_FRONT, *STORY, *FRENCH_BACK]
    tagged = "".join(f"<p>{text}</p>" for text in texts)
    files = {
        "a.docx": docx("".join(map(paragraph, texts))),
        "a.epub": epub(tagged),
        "a.html": f"<html><body>{tagged}</body></html>".encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        read = read_document(str(tmp_path / name)).paragraphs
        body = [each.text for each in read if each.part == "body" and each.text in texts]
        assert body == STORY, name


@pytest.mark.parametrize(
    "text",
    [
        "Tous droits réservés pour tous pays.",
        "Alle Rechte vorbehalten, auch die der Übersetzung in andere Sprachen.",
        "Ce livre est mis à disposition selon les termes de la licence libre que voici.",
        "The Project Gutenberg Literary Archive Foundation is a non-profit corporation.",
    ],
)
def test_licences_in_other_words(text: str) -> None:
    story = [Paragraph(each, None) for each in STORY]
    assert mark_parts([Paragraph(text, None), *story])[0].part == "copyright"


def test_a_book_about_such_a_library_is_text() -> None:
    text = "She had read the novel at home, in an edition of the library that Hart had founded."
    assert {each.part for each in mark_parts([Paragraph(text, None)] * 3)} == {"body"}
