"""A decoder layer to its kernels: the weights it has, and the work on either side of attention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specx.kernels.ancestors import AncestorMask


@dataclass(frozen=True)
class LinearMap:
    """A linear map: ``weight`` [N, K], ``bias`` [N] or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """Weights of a decoder layer as Llama, Mistral, Qwen2, Qwen3 and SmolLM3 have it.

    ``input_norm``, ``output_norm`` [K]: of the RMSNorms before attention and before the MLP, each
    with its epsilon; ``input_norm`` is None where the layer norms nothing itself. ``heads``:
    queries, keys and values in this order, as one map to (Hq + 2 Hkv) · D; ``head_norms``: weights
    [D] of an RMSNorm of each query and each key head, and its epsilon, where there are any.
    ``gate_up``: both inputs of the gate as one map.
    """

    input_norm: tuple[Tensor, float] | None
    heads: LinearMap
    head_norms: tuple[Tensor, Tensor, float] | None
    head_dim: int
    out: LinearMap
    output_norm: tuple[Tensor, float]
    gate_up: LinearMap
    down: LinearMap


@dataclass(frozen=True, kw_only=True)
class HeadNorms:
    """RMSNorms in front of the first layer of an EAGLE-3 head.

    ``embedding``, ``state`` [H]: their weights; ``eps``: of both. ``residual``: the normed state is
    what the layer adds to.
    """

    embedding: Tensor
    state: Tensor
    eps: float
    residual: bool


class LayerKernels(Protocol):
    """A decoder layer on either side of its attention. T is any number of rows."""

    def before_attention(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Norm, project, rotate, and store keys and values.

        x [T, K], K inputs of ``heads``; cos, sin [T, D], whose second halves repeat the first;
        slots int64 [T]: rows of keys, values [Hkv, capacity, D] that are written. Returns queries
        [Hq, T, D].
        """

    def after_attention(self, attended: Tensor, x: Tensor) -> Tensor:
        """Project, add the residual x [T, K], and run the MLP: attended [T, Hq · D] -> [T, K].

        ``x`` may be overwritten.
        """


@dataclass(frozen=True, kw_only=True)
class DecoderWeights:
    """Weights of a whole decoder. All layers scale their scores by ``scaling``.

    ``embedding`` [V, K]. ``frequencies`` float32 [D/2] in radians per position, and ``amplitude``,
    which cosines and sines are multiplied with; ``rotates``: of each layer, if its queries and keys
    have positions. ``norm``: behind the layers, with its epsilon. ``head``: to V logits. ``spare``
    returns the bytes of memory that copies of weights may take by now.
    """

    embedding: Tensor
    frequencies: Tensor
    amplitude: float
    layers: Sequence[LayerWeights]
    rotates: Sequence[bool]
    scaling: float
    norm: tuple[Tensor, float]
    head: LinearMap
    spare: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class FewRows:
    """The rows of a pass: what they see, and what is wanted of them.

    ``tokens``, ``positions`` int64 [T]; ``storage`` [layers, 2, Hkv, capacity, D]; ``slots`` int64
    [T]: where new rows are written; ``prefix`` int64 [1] and ``mask``: as for attention to a tree.
    ``wanted``: the rows (int64) that need logits, or how many of the last; 0 means all. ``kept``:
    the layers, counted from 0 and ascending, that return ``Kept``. The storage is contiguous.
    """

    tokens: Tensor
    positions: Tensor
    storage: Tensor
    slots: Tensor
    prefix: Tensor
    mask: AncestorMask
    wanted: Tensor | int
    kept: tuple[int, ...] = ()


# Of a layer: rotated queries [Hq, T, D], and the log-sum-exp [Hq, T] of their scaled scores.
Kept = tuple[Tensor, Tensor]


class WholePass(Protocol):
    """A pass through all layers at once, for few rows.

    ``saved_bytes``: of weights that it has read in fewer bytes than they have.
    """

    saved_bytes: int

    def serves(self, rows: int) -> bool:
        """Return True if passes over so many rows can be computed now."""

    def __call__(self, few: FewRows) -> tuple[Tensor, tuple[Kept, ...]]:
        """Store the keys and values of rows, and compute them.

        Returns logits [wanted, V], and of each layer ``kept`` what attention had there.
        """


class Product(Protocol):
    """One linear map."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply x [T, K] -> [T, N]."""


class Norm(Protocol):
    """One RMSNorm."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [T, K] over its root mean square, times the weight, rounded as Llama does."""


class HeadInput(Protocol):
    """The input of a head's first layer: embeddings beside states, each normed or neither."""

    def __call__(
        self, tokens: Tensor, states: Tensor, parents: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Look up, norm and join.

        tokens int64 [T]; states [S, H]; parents int64 [T]: rows of the states, None: each its own,
        S = T. Returns x [T, 2 H], the embedding first, and the residual [T, H], contiguous.
        """
