"""The facts that are kept, and how they are laid out."""

import json
import re
from pathlib import Path

from tests.evaluation.facts import expressions, lay_out, readable, records


def test_each_document_has_vital_facts_that_can_be_found() -> None:
    found = records()
    assert len({each["source"] for each in found}) == len(found)
    for record in found:
        assert re.match(r"https://\S+/[0-9a-f]{40}/\S+$", record["source"])
        assert any(fact["vital"] for fact in record["facts"])
        for fact in record["facts"]:
            assert expressions(fact)
            for each in expressions(fact):
                re.compile(each)


def test_a_marked_sentence_is_found_by_its_first_words() -> None:
    (expression,) = expressions({"vital": True, "sentences": ["we 2nd affirm the"]})
    assert re.search(expression, "(We, 2nd: affirm the order.", re.IGNORECASE)
    assert not re.search(expression, "We affirm the order.", re.IGNORECASE)


def test_opinions_and_tagged_texts_are_made_readable() -> None:
    opinion = json.dumps({"content": "OPINION{1} We affirm.{2} So ordered."}).encode()
    assert readable("x/1.json", opinion) == (
        ".txt",
        b"OPINION\n\n{1} We affirm.\n\n{2} So ordered.",
    )
    tagged = b"The/AT-TL jury/NN said/VBD ``/pct no/AT ''/pct ,/pct too/RB ./pct"
    assert readable("x/brown_txt/a01.txt", tagged)[1] == b'The jury said " no ", too.'


def test_documents_are_laid_out_with_their_facts_and_missing_ones_named(tmp_path: Path) -> None:
    first, second = records()[:2]

    def download(source: str) -> bytes:
        if source == second["source"]:
            raise OSError("not there")
        return b'{"content": "words"}' if source.endswith(".json") else b"words"

    assert lay_out(tmp_path, download) == [f"{second['source']}: not there"]
    told = json.loads((tmp_path / "000.nuggets.json").read_text())
    assert (tmp_path / told["file"]).exists()
    assert [each["vital"] for each in told["nuggets"]] == [each["vital"] for each in first["facts"]]
    assert not (tmp_path / "001.nuggets.json").exists()
