"""Shards: the share of one run, when several share the inputs of a job."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from specx.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The ``number``-th of ``count`` shards, counted from 1."""

    number: int
    count: int

    @property
    def label(self) -> str:
        """Return a part of a file's name, empty for the only shard."""
        return f"-{self.number}-of-{self.count}" if self.count > 1 else ""

    def share(self, items: Sequence[T]) -> list[T]:
        """Return every ``count``-th item. Each item is in exactly one shard."""
        return list(items[self.number - 1 :: self.count])


WHOLE = Shard(1, 1)


def parse_shard(text: str | None) -> Shard:
    """Return the shard that a text such as ``2/8`` names. Raises UsageError for any other text."""
    if text is None:
        return WHOLE
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    shard = Shard(int(found[1]), int(found[2])) if found else None
    if shard is None or not 1 <= shard.number <= shard.count:
        raise UsageError(f"--shard {text} is no shard; 2/8 is the second of eight")
    return shard
