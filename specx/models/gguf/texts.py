"""A file's long lists of texts, such as a vocabulary, read all at once."""

import mmap
import struct
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_LENGTH = 8  # bytes of a text's length, in front of it
_USUAL = 32  # bytes of a token or a merge with its length, at most, on average


@dataclass(frozen=True)
class TextList:
    """Texts, cut where they are needed: a draft mostly has the tokenizer of its target.

    ``joined``: all of them, each behind a zero; None if some have that character.
    """

    joined: str | None
    apart: tuple[str, ...] = ()

    @cached_property
    def texts(self) -> list[str]:
        """The texts in a list, which must not be changed."""
        return list(self.apart) if self.joined is None else self.joined.split("\0")[1:]


def read_texts(data: mmap.mmap | bytes, first: int, count: int) -> tuple[TextList | None, int]:
    """Read ``count`` texts from byte ``first`` on; return them, and the end of the last one.

    None if a text extends beyond the file. Raises UnicodeDecodeError.
    """
    starts, end = _starts(data, first, count)
    if len(starts) < count or first + end > len(data):
        return None, end
    # A zero in the place of each length.
    whole = np.frombuffer(bytearray(data[first : first + end]), np.uint8)
    places, stays = np.array(starts, np.int64), np.ones(len(whole), bool)
    whole[places] = 0
    for i in range(1, _LENGTH):
        stays[places + i] = False
    joined = whole[stays].tobytes().decode("utf-8")
    if joined.count("\0") == count:
        return TextList(joined), first + end
    cuts = zip(starts, [*starts[1:], end], strict=True)
    apart = tuple(data[first + a + _LENGTH : first + b].decode() for a, b in cuts)
    return TextList(None, apart), first + end


def _starts(data: mmap.mmap | bytes, first: int, count: int) -> tuple[list[int], int]:
    """Return the starts of the texts, counted from ``first``, and the end of the last one.

    There are fewer than ``count`` if the file ends earlier.
    """
    near = np.frombuffer(data[first : first + _USUAL * count], np.uint8)
    # Seven zeros stand in the length of a text of less than 256 bytes, and hardly elsewhere.
    zero = near == 0
    for width in (1, 2, 3):  # then 2, 4, 7 in a row
        zero = zero[:-width] & zero[width:]
    places = np.flatnonzero(zero[1:])
    behind = places + _LENGTH + near[places]
    breaks = [*np.flatnonzero(places[1:] != behind[:-1]).tolist(), len(places) - 1]
    length_at, last = struct.Struct("<Q").unpack_from, len(data) - first - _LENGTH
    starts, at = list[int](), 0
    while len(starts) < count and at <= last:
        i = int(np.searchsorted(places, at))
        if i < len(places) and places[i] == at:  # and so up to the next break
            end = breaks[bisect_left(breaks, i)]
            starts += places[i : end + 1].tolist()
            at = int(behind[end])
        else:
            starts.append(at)
            at += _LENGTH + length_at(data, first + at)[0]
    return starts[:count], starts[count] if len(starts) > count else at
