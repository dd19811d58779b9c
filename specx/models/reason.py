"""The reason in a foreign exception, short enough to stand inside one of our sentences."""

import re

_LONGEST = 200  # characters; a clause, not a paragraph


def reason(error: BaseException) -> str:
    """Return the first sentence of an exception's message on one line, without a full stop.

    An exception without a message is named by its class.
    """
    text = " ".join(str(error).split())
    first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0].rstrip(".!: ")
    if len(first) > _LONGEST:
        first = first[:_LONGEST].rsplit(" ", 1)[0] + "…"
    return first or type(error).__name__
