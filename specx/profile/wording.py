"""Parts of sentences about profiles."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return a hint at the option that ``word`` resembles, or an empty string."""
    close = get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """Return a value as a short, printable part of a sentence."""
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a section"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"
    text = repr(value) if isinstance(value, str | int | float) else repr(str(value))
    return text if len(text) <= 60 else f"{text[:56]} …"


def dotted(place: Iterable[str]) -> str:
    """Return a key with the sections around it, as in `tree.nodes`."""
    return ".".join(key if key.isidentifier() else shown(key) for key in place)
