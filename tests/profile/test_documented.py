"""``docs/profiles.md`` says what the schema says.

``python tests/profile/test_documented.py`` prints the table of all keys for it.
"""

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from specx.profile import Profile, parse_profile
from specx.profile.section import sections

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "profiles.md"


def table() -> str:
    """The table of all keys, made from the schema."""
    head = "| key | values | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(_rows())


def _rows() -> Iterator[str]:
    found = dict(sections(Profile))
    top = [(name, info) for name, info in Profile.model_fields.items()]
    for name, info in top:
        yield _row(name, info)
        for place, section in found.items():
            if place[:1] == (name,) and (len(place) == 1 or info.discriminator):
                tag = f" ({place[1]} only)" if len(place) > 1 else ""
                for key, inner in section.model_fields.items():
                    if tag and key == "kind":
                        tagged = f"`{place[1]}`"
                        yield f"| `{name}.kind` | {tagged} | required | {inner.description} |"
                    else:
                        yield _row(f"{name}.{key}", inner, tag)


def _row(name: str, info: FieldInfo, tag: str = "") -> str:
    return f"| `{name}` | {_values(info)} | {_default(info)} | {info.description}{tag} |"


def _values(info: FieldInfo) -> str:
    parts = [info.annotation, *get_args(info.annotation)]
    words = [f"`{w}`" for part in parts for w in get_args(part) if isinstance(w, str)]
    if get_origin(info.annotation) is dict:
        return "keys with text"
    if any(get_origin(part) is list for part in parts):
        return "list of integers or null"
    types = {int: "integer", float: "number", str: "text", bool: "`true`, `false`"}
    found = list(dict.fromkeys(words)) + [types[t] for t in parts if t in types] or ["keys"]
    null = ["null"] if NoneType in parts else []
    return ", ".join(found) + _limits(info) + "".join(f" or {word}" for word in null)


def _limits(info: FieldInfo) -> str:
    """The range of a number, as in " ≥ 4, ≤ 64"."""
    signs = {"gt": ">", "ge": "≥", "le": "≤"}
    rules = [(sign, rule, name) for rule in info.metadata for name, sign in signs.items()]
    limits = [f"{s} {getattr(rule, name):.12g}" for s, rule, name in rules if hasattr(rule, name)]
    return f" {', '.join(limits)}" if limits else ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if isinstance(info.default, BaseModel):
        return "as below"
    if isinstance(info.default, dict):
        return ", ".join(f"`{key}`" for key in info.default)
    if isinstance(info.default, bool):
        return f"`{str(info.default).lower()}`"
    return "null" if info.default is None else f"`{info.default}`" if info.default != "" else "none"


def test_the_documented_table_is_the_schemas() -> None:
    documented = DOCUMENTATION.read_text(encoding="utf-8")
    assert table() in documented, f"print the current table with: python {__file__}"


def test_documented_examples_are_valid() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    examples = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    assert examples
    for example in examples:
        parse_profile(example, "docs/profiles.md")


if __name__ == "__main__":
    print(table())
