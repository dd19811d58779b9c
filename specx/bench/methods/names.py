"""The grammar of a method's name: a base, components, settings.

``specextend``, ``tree-hta-flash+cmr``, ``specextend-window:chunk=64,top_k=16``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from specx.errors import UsageError
from specx.profile.wording import did_you_mean


@dataclass(frozen=True)
class MethodName:
    """``components``: pairs of ``+`` or ``-`` and a component; ``settings``: as ``key=value``."""

    text: str
    base: str
    components: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()


def split_names(text: str) -> list[str]:
    """``tree,specextend:chunk=64,top_k=16`` -> ``tree`` and ``specextend:chunk=64,top_k=16``, each
    once: a comma before a setting belongs to the name."""
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return list(dict.fromkeys(names))


def parse_name(text: str, bases: Iterable[str], components: Iterable[str]) -> MethodName:
    """Raises UsageError for an unknown base or component, or settings without any."""
    head, colon, settings = text.partition(":")
    base = _base(head, bases)
    if base is None:
        _refuse(f"{text!r} is no method", head, bases)
    changes = head[len(base) :]
    found = re.findall(r"([+-])([^+-]*)", changes)
    for _, component in found:
        if component not in components:
            _refuse(f"{text!r} has no component {component!r}", component, components)
    if colon and not settings:
        raise UsageError(f"{text!r} has no setting behind the colon; write {head}:key=value")
    listed = tuple(part.strip() for part in settings.split(",")) if settings else ()
    return MethodName(text, base, tuple(found), listed)


def _base(head: str, bases: Iterable[str]) -> str | None:
    """The longest base that ``head`` begins with, up to its end or a sign."""
    fitting = [base for base in bases if re.match(rf"{re.escape(base)}(?=$|[+-])", head)]
    return max(fitting, key=len, default=None)


def _refuse(sentence: str, word: str, options: Iterable[str]) -> NoReturn:
    hint = did_you_mean(word, options) or f"; there are {', '.join(options)}"
    raise UsageError(f"{sentence}{hint}")
