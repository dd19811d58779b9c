"""The settings that differ from those of an earlier run, in words."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specx.profile import Profile

_NAMED = 5  # settings that are named; more are counted
# What a run resolves: its own values are not yet known.
_RESOLVED = {"generation.max_new_tokens", "draft_cache.layer"}
_COMPARED = ("prompt", "generation", "fallback", "long_documents")  # the others differ by device


def changes_since(report: Path, profile: Profile, method: str) -> str:
    """Return what has changed since a report was written: ``prompt.words is 150 (was 300)``.

    An empty text where the report cannot be read, or shows no difference.
    """
    try:
        earlier = json.loads(report.read_bytes())
        was = dict(_flat(_asked(earlier["settings"])), method=earlier["method"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    now = dict(_flat(_asked(profile.model_dump(mode="json"))), method=method)
    found = [
        f"{key} is {_shown(value)} ({f'was {_shown(was[key])}' if key in was else 'is new'})"
        for key, value in now.items()
        if key not in _RESOLVED and was.get(key, was) != value
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: settings[key] for key in _COMPARED if key in settings}


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
