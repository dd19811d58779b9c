"""Judge a digest while it is written: each sentence has to match its paragraph.

The judge sees only token ids. So it can end decoding (``specx.records.Stop``), and every method
ends at the same token.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specx.records import FinishReason

# A sentence may differ from its paragraph by MOST_EDITS tokens, and by this share of its own: the
# embedded pair sometimes slips by a token or two. What it makes up is unlike from the beginning.
MOST_EDITS = 4
EDITS_SHARE = 0.25
LONGEST = 80  # tokens of a sentence that the embedded pair was trained to quote
IN_A_ROW = 2  # lost sentences end the digest

TokenIds = Sequence[int] | npt.NDArray[np.int64]


class Distance:
    """The edit distance of a growing sentence from the best-matching part of a paragraph.

    ``edits``: tokens to insert, delete or replace; their number never decreases. (Sellers'
    algorithm: the edit distance with a free beginning and end in the paragraph.)
    """

    def __init__(self, paragraph: TokenIds) -> None:
        self._paragraph = np.array(paragraph, dtype=np.int64)
        self._places = np.arange(len(paragraph) + 1)
        self._row = np.zeros_like(self._places)  # edits if the stretch ends at each place
        self.edits = 0

    def add(self, token: int) -> None:
        row = self._row + 1  # the token is not in the paragraph
        row[1:] = np.minimum(row[1:], self._row[:-1] + (self._paragraph != token))
        # The paragraph's tokens up to a place may be left out, each for one edit.
        self._row = np.minimum.accumulate(row - self._places) + self._places
        self.edits = int(self._row.min())


class QuoteJudge:
    """Follows the output of one prompt, token by token; it is a ``Stop``.

    ``markers``: the ids of all markers, in order. ``paragraphs``: the token ids of the paragraphs
    in the prompt. ``ended``: the reason to end the digest, if any.

    A sentence is lost in four cases: its marker has no paragraph; its marker does not follow the
    last kept sentence's marker; the sentence is empty; the sentence does not match its paragraph.
    The digest ends at the second consecutive lost sentence, within a lost sentence that does not
    end, and before a sentence beyond the requested number, ``most``.
    """

    def __init__(
        self,
        markers: Sequence[int],
        paragraphs: Sequence[TokenIds],
        most: int | None = None,
    ) -> None:
        self._place_of = {token: place for place, token in enumerate(markers)}
        self._paragraphs = paragraphs
        # Of the open sentence: its paragraph's place in the prompt (None: no sentence is open), its
        # distance from that paragraph (None: it is lost), and its length.
        self._place: int | None = None
        self._distance: Distance | None = None
        self._tokens = 0
        self._kept = -1  # the place of the sentence kept last
        self._in_a_row = 0
        self._wanted = most  # sentences that may still follow; None: any number
        self.ended: FinishReason | None = None

    def __call__(self, token: int) -> FinishReason | None:
        """Take the next token. Return the reason to end the digest after it, if any."""
        place = self._place_of.get(token)
        if place is not None:
            self.close()
            if self._wanted == 0:
                self.ended = "end"
            else:
                self._begin(place)
        else:
            if self._place is None:
                self._begin(-1)  # text before any marker
            self._add(token)
        return self.ended

    def close(self) -> int | None:
        """End the open sentence; return its paragraph's number, None for a lost or missing one."""
        place, distance = self._place, self._distance
        self._place = self._distance = None
        if place is None or distance is None:
            return None
        if not self._tokens or distance.edits > EDITS_SHARE * self._tokens:
            self._count_lost()
            return None
        self._kept, self._in_a_row = place, 0
        self._wanted = None if self._wanted is None else self._wanted - 1
        return place

    def _begin(self, place: int) -> None:
        self._place, self._distance, self._tokens = place, None, 0
        if self._kept < place < len(self._paragraphs):
            self._distance = Distance(self._paragraphs[place])
        else:
            self._count_lost()

    def _add(self, token: int) -> None:
        self._tokens += 1
        if self._distance is not None:
            self._distance.add(token)
            if self._distance.edits > MOST_EDITS:
                self._distance = None
                self._count_lost()
        if self._distance is None and self._tokens > LONGEST:
            self.ended = "strayed"

    def _count_lost(self) -> None:
        self._in_a_row += 1
        if self._in_a_row == IN_A_ROW:
            self.ended = "strayed"
