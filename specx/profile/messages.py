"""Sentences about the problems of a profile."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from specx.profile.wording import did_you_mean, dotted, shown
from specx.profile.yaml_lines import Place, Problem


def problem_of(details: Any, lines: dict[Place, int], schema: type[BaseModel]) -> Problem:
    """Return one of pydantic's errors in our words, with its line."""
    return Problem(_line(_place(details), lines), sentence_of(details, schema))


def sentence_of(details: Any, schema: type[BaseModel]) -> str:
    """Return one of pydantic's errors about ``schema`` in our words."""
    place, section = _place(details), _section_of(details, schema)
    key, name, value = place[-1], f"`{dotted(place)}`", details["input"]
    limits = details.get("ctx", {})
    match details["type"]:
        case "missing":
            means = section.model_fields[key].description
            return f"`{dotted(place)}` is missing: {means}{_MISSING.get(place, '')}"
        case "extra_forbidden" if place in _REPLACED:
            return f"{name} is gone: {_REPLACED[place]}"
        case "extra_forbidden":
            where = f" in `{dotted(place[:-1])}`" if place[:-1] else ""
            keys = list(section.model_fields)
            hint = did_you_mean(key, keys) or f"; known are {', '.join(keys)}"
            return f"unknown key {shown(key)}{where}{hint}"
        case "invalid_key":
            return f"a key in `{dotted(place[:-1])}` is {shown(value)}; keys are plain words"
        case "literal_error":
            return f"{name} is {shown(value)}; {_choices(value, _options(section, key))}"
        case "union_tag_not_found":
            return f"`{dotted((*place, 'kind'))}` is missing: digest or instruct"
        case "union_tag_invalid":
            kind, options = value["kind"], ["digest", "instruct"]
            return f"`{dotted((*place, 'kind'))}` is {shown(kind)}; {_choices(kind, options)}"
        case "value_error":
            return f"{name} {limits['error']}"
        case "greater_than_equal":
            return f"{name} is {shown(value)}; it must be at least {limits['ge']:.12g}"
        case "greater_than":
            return f"{name} is {shown(value)}; it must be more than {limits['gt']:.12g}"
        case "less_than_equal":
            return f"{name} is {shown(value)}; it must be at most {limits['le']:.12g}"
        case "string_too_short":
            return f"{name} is empty"
        case kind if kind in _WANTED:
            return f"{name} is {shown(value)}; it must be {_WANTED[kind]}"
        case _:
            return f"{name} is {shown(value)}, which cannot be; docs/profiles.md says what can"


_REPLACED: dict[Place, str] = {
    ("prompt", "task"): "remove it; the control task is measured with `specx bench --task control`",
}
_MISSING: dict[Place, str] = {
    ("draft",): "; write `draft: null`, or use --model, which needs no profile",
}
_KEYS = "keys of its own, indented below it"
_WANTED = {
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "dict_type": _KEYS,
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number, such as 0.5",
    "finite_number": "a finite number",
    "string_type": "text; put it in quotes",
    "string_unicode": "text without half characters",
    "string_pattern_mismatch": "letters, digits, dots, dashes and underscores",
}


def _place(details: Any) -> Place:
    """Return the keys that lead to an error, without the prompt's kind, which pydantic inserts."""
    location = tuple(str(part) for part in details["loc"])
    return (location[0], *location[2:]) if location[:1] == ("prompt",) else location


def _section_of(details: Any, schema: type[BaseModel]) -> type[BaseModel]:
    location = tuple(str(part) for part in details["loc"])
    return dict(sections(schema)).get(location[:-1], schema)


def sections(schema: type[BaseModel], place: Place = ()) -> Iterator[tuple[Place, type[BaseModel]]]:
    """Yield every section of a schema, at the place pydantic gives it: ("prompt", "digest")."""
    yield place, schema
    for name, info in schema.model_fields.items():
        for candidate in (info.annotation, *get_args(info.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                tag = (candidate.model_fields["kind"].default,) if info.discriminator else ()
                yield from sections(candidate, (*place, name, *tag))


def _options(section: type[BaseModel], key: str) -> list[str]:
    """Return the words that a key accepts: those of its Literal, also inside a union."""
    annotation = section.model_fields[key].annotation
    words = [word for part in (annotation, *get_args(annotation)) for word in get_args(part)]
    return list(dict.fromkeys(word for word in words if isinstance(word, str)))


def _choices(value: object, options: list[str]) -> str:
    one_of = "one of " if len(options) > 1 else ""
    return f"it must be {one_of}{', '.join(options)}{did_you_mean(str(value), options)}"


def _line(place: Place, lines: dict[Place, int]) -> int:
    """Return the line of a key, or of the closest section around a missing key."""
    while place not in lines:
        place = place[:-1]
    return lines[place]


def report(problems: list[Problem], source: str) -> str:
    """Return the message of the error: a heading, and a line for each problem."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n".join([f"the profile {source} has {count}:", *(f"  {each}" for each in problems)])
