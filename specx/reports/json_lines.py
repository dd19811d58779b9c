"""Objects as JSON: indented when there is one, a line each when there are many."""

import json
import re
from typing import Any

# Half characters (names of files that are no UTF-8) cannot be written as UTF-8, and some readers
# take the other three for the end of a line. JSON has a notation for them.
_ESCAPED = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


def to_json(report: dict[str, Any]) -> str:
    """One object over several lines, for ``--json`` and report files; no newline at the end."""
    return _escape(json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2))


def to_json_line(report: dict[str, Any]) -> str:
    """One object in one line, for ``--jsonl``; no newline at the end."""
    return _escape(json.dumps(report, ensure_ascii=False, allow_nan=False))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
