"""Captions, and sentences about figures, which are none."""

from pathlib import Path

import pytest

from specx.documents.headings import is_caption
from specx.documents.read import read_document


@pytest.mark.parametrize(
    "text",
    [
        "Figure 10: Cullen and Frey graph for the data set, with the bootstrapped values.",
        "Figure 2.3 – The old bridge",
        "Fig. 3. The bridge in winter.",
        "FIG. 3.—A bridge.",
        "Figure 4 Days below the standard at the four stations",
        "Figure 1",
        "Figure A.2: Depth",
        "Supplementary Table 2. Counts of all birds.",
        "Table 1: Counts of birds by month.",
        "TABLE II: Costs",
        "Listing 2 | A loop",
        "Algorithm 1 Sorting by insertion",
        "Scheme 3. Reaction",
        "Abbildung 4: Die Brücke im Winter.",
        "Abb. 4: Die Brücke.",
        "Tableau 1 : Les oiseaux du mois.",
        "Рис. 3. Мост зимой.",
        "図3 橋",
        "图 2：桥",
    ],
)
def test_captions_begin_with_their_number(text: str) -> None:
    assert is_caption(text)


@pytest.mark.parametrize(
    "text",
    [
        "Figure 3 shows how the depth of the river changed over the year.",
        "Table 2 and Table 3 have the counts.",
        "Tables are made of wood here.",
        "Figures from 2019 are not given.",
        "Map reading is taught in March.",
        "Chart the course of the ferry before it sails.",
        "Algorithms 1 and 2 differ in one line.",
        "Plates 3 to 5 are missing.",
    ],
)
def test_sentences_about_figures_are_text(text: str) -> None:
    assert not is_caption(text)


def test_captions_of_a_text_file_are_a_kind_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("Figure 3: The old bridge in winter.\n\nNobody crosses the bridge in winter.\n")
    kinds = [each.kind for each in read_document(str(file)).paragraphs]
    assert kinds == ["caption", "text"]
