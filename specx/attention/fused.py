"""Whether the Triton kernels can be used, and how the engine calls them."""

import importlib.util
from functools import cache

from torch import Tensor

from specx.attention.call import AttentionCall


@cache
def is_available() -> bool:
    """Triton comes with torch's CUDA builds."""
    return importlib.util.find_spec("triton") is not None


def serves(tensor: Tensor) -> bool:
    """Whether the kernels are the way to go for a tensor: on a GPU, with Triton."""
    return tensor.is_cuda and is_available()


def tree_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall
) -> tuple[Tensor, Tensor]:
    """As ``hybrid.tree_attention``, in one pass, and without the host knowing any length."""
    from specx.attention import triton_tree

    assert call.prefix is not None
    assert call.visible is not None
    out, lse = triton_tree.tree_attention(q[0], k[0], v[0], call.prefix, call.visible, scaling)
    return out.transpose(0, 1)[None], lse[None]


def chunk_scores(
    query: Tensor, lse: Tensor, keys: Tensor, length: Tensor, scaling: float, chunk: int
) -> Tensor:
    """As ``scores.chunk_scores``, without the host knowing the length."""
    from specx.attention import triton_tree

    return triton_tree.chunk_scores(query, lse, keys, length, scaling, chunk)
