"""The shape of a head, as data."""

from dataclasses import dataclass
from typing import Any, Literal

HeadKind = Literal["eagle", "eagle3"]


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """The shape of a head, and every flag that changes what it computes.

    ``config``: of its layers, as in a config.json, all sizes stated. ``features``: layers of the
    target whose input it reads, counted from 0 (the number of layers: the output of the last);
    empty for the normed output, which EAGLE reads. ``feature_size``: elements of one of them.
    ``vocabulary``: rows of its lm head, None for the target's own lm head. ``embeds``: it brings
    its own embeddings.

    ``norms_residual``: the first residual is the normed state. ``feature_norm``: of the features
    before ``fc``, over all together or each alone. ``final_norm``: in front of the lm head.
    ``feeds_normed``: the state of a row is its normed output. ``window``: rows that a row attends
    to, its own included; None: all. ``qkv_bias``: of queries, keys and values alone.
    """

    kind: HeadKind
    config: dict[str, Any]
    features: tuple[int, ...]
    feature_size: int
    vocabulary: int | None
    embeds: bool
    fc_bias: bool = False
    norms_residual: bool = False
    feature_norm: Literal["none", "all", "each"] = "none"
    final_norm: bool = True
    feeds_normed: bool = False
    window: int | None = None
    qkv_bias: bool = False

    @property
    def width(self) -> int:
        """Elements of the features of one token."""
        return max(1, len(self.features)) * self.feature_size
