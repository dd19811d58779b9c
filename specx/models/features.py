"""The hidden states of a target that a head reads, noted while a forward pass goes through it.

Whoever computes the pass writes to the record that it finds in the call.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

RECENT = 512  # tokens: more than a head ever falls behind


@dataclass(frozen=True)
class FeatureSource:
    """The states to note: the input of ``layers``, or the normed output where there are none.

    Layers are counted from 0; the number of layers stands for the output of the last. ``size``:
    elements of a token's features, all layers together.
    """

    layers: tuple[int, ...]
    size: int

    def is_behind(self, layers: int) -> bool:
        """Return True if some lie behind the last of so many layers."""
        return not self.layers or layers in self.layers


class Features:
    """The features of one document.

    ``rows`` [R, F]: of the tokens of the last pass, in its order. Of the text, those of the last
    tokens are remembered (``read``). All is changed in place.
    """

    def __init__(
        self, source: FeatureSource, rows: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """``rows``: the most tokens of a pass."""
        self.source = source
        self.rows = torch.zeros(rows, source.size, dtype=dtype, device=device)
        self._recent = torch.zeros(RECENT, source.size, dtype=dtype, device=device)
        self._counted = torch.arange(RECENT, device=device)

    def begin(self) -> None:
        """Forget the text: rows that are read before they are written are zeros again."""
        self._recent.zero_()

    def note_layer(self, hidden: Tensor, layer: int) -> None:
        """Take hidden [1, T, H] as the input of a layer, if that is wanted."""
        if layer in self.source.layers:
            self.note(hidden, self.source.layers.index(layer))

    def note_output(self, normed: Tensor) -> None:
        """Take normed [1, T, H] as the normed output, if that is wanted."""
        if not self.source.layers:
            self.note(normed)

    def note(self, hidden: Tensor, place: int = 0) -> None:
        """Take hidden [1, T, H] as the ``place``-th part of the features of a pass over T rows."""
        size = hidden.shape[-1]
        self.rows[: hidden.shape[1], place * size : (place + 1) * size] = hidden[0]

    def keep(self, rows: Tensor, position: Tensor) -> None:
        """Remember ``rows`` int64 [n] of the last pass as those of the tokens from ``position`` on.

        position int64 [1], in the text. Those behind the end of the text are overwritten later.
        """
        places = (position + self._counted[: len(rows)]) % RECENT
        self._recent.index_copy_(0, places, self.rows.index_select(0, rows))

    def read(self, position: Tensor | int, count: int) -> Tensor:
        """Return the features of ``count`` tokens from ``position`` (int64 [1]) on: [count, F]."""
        return self._recent.index_select(0, (position + self._counted[:count]) % RECENT)
