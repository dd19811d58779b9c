"""ROUGE where there is a reference, identity everywhere."""

from dataclasses import replace
from typing import Any

import pytest

from specx.bench.experiments.quality import EXPERIMENT, words_of
from specx.prompts.prompt import Output
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench
from tests.places import make_quote


def scored(rouge: float, lead: float) -> dict[str, Any]:
    kinds = ("rouge1", "rouge2", "rougeL")
    return {"rouge": dict.fromkeys(kinds, rouge), "lead": dict.fromkeys(kinds, lead)}


def test_lead_is_scored_like_the_output() -> None:
    bench = tiny_bench(output=12)
    document = bench.documents[0]
    bench = replace(bench, documents=(replace(document, reference=document.text),))
    runs = list(EXPERIMENT.measure(bench))
    assert [run.method for run in runs] == ["plain", "specextend"]
    lead = runs[0].facts["lead"]
    assert runs[0].facts == runs[1].facts
    # The reference says what the document says, so its beginning has every word and order right.
    assert 0 < lead["rouge1"] == lead["rougeL"]
    assert runs[0].facts["rouge"]["rouge1"] < lead["rouge1"]


def test_without_a_reference_there_is_identity_alone() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench(output=12)))
    assert all(run.facts == {} for run in runs)
    findings = EXPERIMENT.conclude(runs)
    columns = "text", "ROUGE-1", "same output as plain"
    assert columns_of(findings.tables[0], *columns) == [
        ("plain", None, "1 of 1"),
        ("specextend", None, "1 of 1"),
    ]


def test_means_and_what_changed() -> None:
    runs = [
        made_up("plain", facts=scored(0.2, 0.4)),
        made_up("tree", facts=scored(0.3, 0.4)),
        made_up("plain", case="b", facts=scored(0.4, 0.2)),
        made_up("tree", case="b", facts=scored(0.5, 0.2), output=(1, 2)),
    ]
    findings = EXPERIMENT.conclude(runs)
    rows = columns_of(findings.tables[0], "text", "documents", "ROUGE-1", "same output as plain")
    assert rows == [
        ("plain", 2, pytest.approx(0.3), "2 of 2"),
        ("tree", 2, pytest.approx(0.4), "1 of 2"),
        ("lead", 2, pytest.approx(0.3), None),
    ]


def test_citations_are_no_words_of_the_summary() -> None:
    quotes = (
        make_quote("One.", paragraph=1),
        make_quote("Two.", paragraph=5, page=2),
    )
    assert words_of(Output("One. [¶1]\n\nTwo. [¶5, p. 2]", quotes)) == "One. Two."
    assert words_of(Output("Free text.")) == "Free text."
