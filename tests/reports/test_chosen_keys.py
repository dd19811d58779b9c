"""Lines of JSON with the keys that the user chooses."""

import dataclasses
from typing import Any

import pytest

from specx.errors import UsageError
from specx.records import Speedup
from specx.reports.chosen_keys import KEYS, Tree, parse_keys, with_keys
from specx.reports.report import (
    LosslessCheck,
    PartSummary,
    ReferenceCheck,
    Report,
    Statement,
)
from tests.reports.examples import make_report, make_sentence


def full_report() -> Report:
    """Return a report in which nothing is empty."""
    part = PartSummary(
        pages=(1, 2), lines=None, paragraphs=(1, 9), tokens=5, limit=None, reason="end", summary="x"
    )
    statement = Statement(kind="number", text="7", sentence=1, start=4)
    return dataclasses.replace(
        make_report(),
        sentences=[make_sentence("One of 7.", "p. 2")],
        not_in_document=[statement],
        not_in_sources=[statement],
        levels=[[part]],
        lossless=LosslessCheck(identical=True, reference=ReferenceCheck(identical=True)),
        speedup=Speedup(plain=3.0, predicted=2.0, measured=1.5),
    )


def chosen(text: str, line: dict[str, Any] | None = None) -> dict[str, Any]:
    return with_keys(line or {"index": 4, **full_report().to_dict()}, parse_keys(text))


def keys_of(value: Any, known: Tree) -> Tree:
    """Return the keys of a line, as deep as the known ones go."""
    if not known:
        return {}
    if isinstance(value, list):
        return keys_of(value[0], known)
    return {name: keys_of(value[name], known.get(name, {})) for name in value}


def test_every_key_of_a_report_can_be_chosen() -> None:
    report = {"index": 0, **full_report().to_dict()}
    assert keys_of(report, KEYS) == {k: v for k, v in KEYS.items() if k not in ("code", "error")}


def test_keys_keep_their_order_and_their_shape() -> None:
    line = chosen("summary, input.name,index,citations.page,input.pages,timings_s.total")
    assert list(line) == ["summary", "input", "index", "citations", "timings_s"]
    assert line["input"] == {"name": "report.pdf", "pages": 12}
    assert (line["index"], line["timings_s"]) == (4, {"total": 2.0})
    assert line["citations"] == [{"page": 2}, {"page": None}]
    assert chosen("levels.parts.pages") == {"levels": [{"parts": [{"pages": (1, 2)}]}]}


def test_an_object_is_chosen_as_a_whole() -> None:
    assert chosen("removed") == {"removed": {"lines": 0, "pages": 0}}
    assert chosen("environment")["environment"]["specx"] == "0.1.0"


def test_what_a_line_lacks_is_null() -> None:
    done = {"index": 0, **make_report().to_dict()}
    assert chosen("lossless.identical,error", done) == {"lossless": None, "error": None}


def test_a_failure_keeps_its_reason() -> None:
    failure = {"schema": "s", "input": {"name": "a"}, "code": 3, "error": "a is empty"}
    assert chosen("input,summary", failure) == {
        "input": {"name": "a"},
        "summary": None,
        "code": 3,
        "error": "a is empty",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sumary", "no line has the key sumary; did you mean summary? there are schema, index, "),
        ("input.nme", "no line has the key input.nme; did you mean input.name? there are schema"),
        ("summary,zzz", "no line has the key zzz; there are schema, index, made, input (name, "),
        ("settings.seed", "no line has the key settings.seed; settings is chosen as a whole"),
        ("summary,", "no line has the key ''; there are schema"),
        ("input.", "no line has the key input.; there are schema"),
    ],
)
def test_a_key_that_no_line_has(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_keys(text)
    assert str(caught.value).startswith(f"--jsonl-keys: {sentence}")
