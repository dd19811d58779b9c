"""The judge of sentences learns what was marked."""

import json
from pathlib import Path

from specx.training.judge import learn, read_labelled

DULL = (
    "The ferry sails at noon from the old pier.",
    "Ships of timber pass the bridge in spring.",
    "A clerk counts the barrels of the harbour.",
)
MARKED = "The council decided by five votes to close the bridge."


def test_marked_phrases_get_weight(tmp_path: Path) -> None:
    for number in range(6):
        texts = [*DULL[number % 3 :], MARKED, *DULL[: number % 3]]
        (tmp_path / f"{number}.txt").write_text("\n\n".join(f"{each}" for each in texts))
        labels = {"file": f"{number}.txt", "kind": "minutes", "ranked": [MARKED]}
        (tmp_path / f"{number}.labels.json").write_text(json.dumps(labels))
    documents = read_labelled(tmp_path, 1.0)
    assert [int(each.wanted.sum()) for each in documents] == [1] * 6
    weights = learn(documents)
    assert weights["decision"] > 0 > weights["bias"]
    assert set(weights) == {*documents[0].names, "bias"}
