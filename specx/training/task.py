"""The digest task as token sequences: documents with their digests, for the embedded target.

A document is ``<p3> paragraph <p4> paragraph … <sum> <n8>``, then for each chosen paragraph its
marker and lead sentence, in document order, then ``<end>``. The control task has ``<sub>`` in place
of ``<sum>`` and substitutes tokens, so that nothing can be copied literally.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from specx.training.labels import choose_paragraphs
from specx.training.pool import Pool
from specx.training.texts import FIRST_TEXT, NUM_MARKERS, SPECIAL_TOKENS, Text, Texts

_ID = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
FIRST_MARKER, _FIRST_LENGTH, _MOST = _ID["<p0>"], _ID["<n1>"], 64
QUOTED = 55  # tokens that a chosen sentence takes on average, its marker counted in
SORTS = {"real": 0.4, "names": 0.15, "random": 0.1, "alphabet": 0.1, "phrases": 0.1,
         "variants": 0.15}  # fmt: skip
CONTROL = 0.1  # of the documents are written as the control task


class DigestDocuments:
    """Documents with their digests, each a function of (seed, step).

    They fill between half and all of ``length`` tokens. ``sorts``: fractions of document types
    (``texts.py``); ``control``: the fraction of the control task.
    """

    def __init__(
        self,
        pool: Pool,
        length: int,
        seed: int = 0,
        sorts: dict[str, float] | None = None,
        control: float = CONTROL,
    ) -> None:
        self._idf, self._texts, self._length, self._seed = pool.idf, Texts(pool), length, seed
        self._sorts, self._control = sorts or SORTS, control

    def draw(self, step: int, count: int) -> Iterator[tuple[Tensor, int]]:
        """Yield the ids of ``count`` documents: int64 [1, n], where n is at most the length.

        With each comes the index of the first marker of its digest.
        """
        rng = np.random.default_rng((self._seed, step))
        for _ in range(count):
            ids, first = self._document(rng, int(self._length * rng.uniform(0.5, 1)))
            yield torch.from_numpy(ids)[None], first

    def _document(self, rng: np.random.Generator, length: int) -> tuple[np.ndarray, int]:
        sort = str(rng.choice(list(self._sorts), p=list(self._sorts.values())))
        control = bool(rng.random() < self._control)
        sentences = _draw_sentences(rng, length)
        text = self._texts.draw(sort, rng, max(64, length - 3 - sentences * QUOTED))
        chosen = self._choose(rng, text, sentences)
        # Drawn in any case, so that later draws do not depend on it.
        first = int(rng.integers(NUM_MARKERS - len(text.paragraphs) + 1))
        if rng.random() >= 0.5:
            first = 0
        marker = FIRST_MARKER + first
        body = [part for index, paragraph in enumerate(text.paragraphs)
                for part in ([marker + index], paragraph)]  # fmt: skip
        request = [_ID["<sub>" if control else "<sum>"], _FIRST_LENGTH + len(chosen) - 1]
        written = []
        for index in chosen.tolist():
            lead = text.paragraphs[index][: text.leads[index]]
            if control:
                lead = lead ^ (lead >= FIRST_TEXT)  # each text token's partner
            written += [[marker + index], lead]
        ids = np.concatenate([*body, request, *written, [_ID["<end>"]]]).astype(np.int64)
        return ids[:length], sum(map(len, body)) + 2

    def _choose(self, rng: np.random.Generator, text: Text, sentences: int) -> np.ndarray:
        """Choose the quoted paragraphs; in texts that are not natural, choose at random."""
        choice = choose_paragraphs(text.paragraphs, text.leads, self._idf, sentences)
        if text.natural:
            return choice.chosen
        return rng.integers(choice.borders[:-1], choice.borders[1:])


def _draw_sentences(rng: np.random.Generator, length: int) -> int:
    """Draw the number of sentences, 4 to 64, with equal weight on 4 to 8, 8 to 16 and 16 to 32."""
    most = np.log2(np.clip(length / 128, 5, _MOST + 0.9))
    return int(2 ** (2 + (most - 2) * rng.random()))
