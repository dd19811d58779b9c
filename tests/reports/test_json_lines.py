"""Notation of JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.reports.json_lines import to_json, to_json_folded, to_json_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_folding_changes_nothing(value: Any) -> None:
    assert json.loads(to_json_folded(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2], "b": {"c": 1, "d": []}}, '{\n  "a": [1, 2],\n  "b": {"c": 1, "d": []}\n}'),
        (
            [[1], {"a": "x" * 90, "b": 1}],
            '[\n  [1],\n  {\n    "a": "' + "x" * 90 + '",\n    "b": 1\n  }\n]',
        ),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_folding(value: Any, text: str) -> None:
    assert to_json_folded(value) == text


def test_what_controls_a_terminal_is_escaped_and_kept() -> None:
    value = {"name": "a\x1b[31m\x7f\x9b\u202e\u2066\u05e9.txt"}
    for written in (to_json(value), to_json_line(value)):
        assert "\\u202e\\u2066\u05e9" in written
        assert not {*"\x1b\x7f\x9b\u202e\u2066"} & {*written}
        assert json.loads(written) == value
