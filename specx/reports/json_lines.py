"""JSON in three layouts: indented, one object per line, or folded for long lists of numbers."""

import json
import re
from typing import Any

FOLDED_WIDTH = 80  # characters of an object that stays in one line

# Lone surrogates (in names of files that are no UTF-8) cannot be written as UTF-8. Some readers
# take U+0085, U+2028 and U+2029 for the end of a line, and the rest controls terminals. JSON can
# escape them.
_ESCAPED = re.compile("[\ud800-\udfff\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def to_json(report: dict[str, Any]) -> str:
    """Return an object as indented JSON, for ``--json`` and report files; no final newline."""
    return _escape(json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2))


def to_json_line(report: Any) -> str:
    """Return an object as JSON in one line, for ``--jsonl``; no final newline."""
    return _escape(json.dumps(report, ensure_ascii=False, allow_nan=False))


def to_json_folded(value: Any, indent: str = "") -> str:
    """Return an object as indented JSON, with lists of plain values and short objects in one line.

    ``indent``: the spaces before the line in which the object begins.
    """
    if not _is_nested(value):
        line = to_json_line(value)
        if not isinstance(value, dict) or len(line) <= FOLDED_WIDTH:
            return line
    deeper = indent + "  "
    if isinstance(value, dict):
        opening, closing = "{}"
        items = [f"{to_json_line(key)}: {to_json_folded(value[key], deeper)}" for key in value]
    else:
        opening, closing = "[]"
        items = [to_json_folded(item, deeper) for item in value]
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}{closing}"


def _is_nested(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict | list) and item for item in items)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
