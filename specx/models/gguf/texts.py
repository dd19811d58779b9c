"""Read a file's long lists of texts, such as a vocabulary, all at once."""

import mmap
import struct
from bisect import bisect_left

import numpy as np

_LENGTH = 8  # bytes of a text's length, in front of it
_USUAL = 32  # bytes of a token or a merge with its length, at most, on average


def read_texts(data: mmap.mmap | bytes, first: int, count: int) -> tuple[list[str], int]:
    """Read ``count`` texts from byte ``first`` on; return them, and the end of the last one.

    Return None if a text extends beyond the file. Raises UnicodeDecodeError.
    """
    starts, end = _starts(data, first, count)
    if len(starts) < count or first + end > len(data):
        return [], end
    # A zero in the place of each length.
    whole = np.frombuffer(bytearray(data[first : first + end]), np.uint8)
    places, stays = np.array(starts, np.int64), np.ones(len(whole), bool)
    whole[places] = 0
    for i in range(1, _LENGTH):
        stays[places + i] = False
    found = whole[stays].tobytes().decode("utf-8").split("\0")[1:]
    if len(found) != count:  # some have that character
        cuts = zip(starts, [*starts[1:], end], strict=True)
        found = [data[first + a + _LENGTH : first + b].decode() for a, b in cuts]
    return found, first + end


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
