"""The attention of a text's tokens to passages of the document that they are about."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from specx.ops.chunks import PASSAGE, Passages

# Scores held at once: 64 MB in float32 on a CPU, 128 MB on a GPU, beside copies of about twice
# as much.
_SCORES = {"cpu": 2**24, "cuda": 2**25}


def passage_attention(
    queries: Tensor, keys: Tensor, seen: int, passages: Passages, scaling: float
) -> Tensor:
    """Compute ``Ops.passage_attention``, a block of tokens at a time."""
    heads, count, _ = queries.shape
    longest = seen + count - 1
    wide = torch.promote_types(queries.dtype, torch.float32)
    keys = keys[:, :longest].to(wide).transpose(-1, -2)
    rows = max(1, _SCORES.get(queries.device.type, 2**24) // (heads * longest))
    blocks = []
    for start in range(0, count, rows):
        block = queries[:, start : start + rows].to(wide)
        blocks.append(_of_block(block, keys[..., : seen + start + block.shape[1] - 1],
                                seen + start, passages, scaling))  # fmt: skip
    return torch.cat(blocks)


def _of_block(
    queries: Tensor, keys: Tensor, seen: int, passages: Passages, scaling: float
) -> Tensor:
    """Return attention [T, P] of queries [Hq, T, D] to keys [Hkv, D, seen + T − 1]."""
    heads, count, dim = queries.shape
    packed = queries.reshape(len(keys), -1, dim)  # heads of a group, one behind the other
    scores = (packed @ keys).mul_(scaling).view(heads, count, -1)
    # Of the rows behind the first ``seen``, token t sees t.
    unseen = torch.ones(count, count - 1, dtype=torch.bool, device=scores.device).triu()
    scores[..., seen:].masked_fill_(unseen, -torch.inf)
    sums = scores.logsumexp(-1)
    of_document = scores[..., passages.first : passages.first + passages.tokens]
    padded = pad(of_document, (0, -passages.tokens % PASSAGE), value=-torch.inf)
    best = _four_largest(padded.unflatten(-1, (-1, PASSAGE)))
    return sum((each - sums[..., None]).exp() for each in best).mean(0)  # type: ignore[union-attr]


def _four_largest(x: Tensor) -> list[Tensor]:
    """Return the four largest of each row of x [..., 64], in tensors of their own.

    It is a sorting network of whole tensors: ``topk`` of many short rows takes twice the time on a
    CPU, and a block of threads for each row on a GPU.
    """
    a, b, c, d = x.unflatten(-1, (4, -1)).unbind(-2)
    (a, b), (c, d) = _sorted(a, b), _sorted(c, d)
    (a, c), (b, d) = _sorted(a, c), _sorted(b, d)
    b, c = _sorted(b, c)
    while (half := a.shape[-1] // 2) > 0:
        # Two descending lists of four: one beside the other reversed has the four largest of both.
        lists = zip((a, b, c, d), (d, c, b, a), strict=True)
        a, b, c, d = (torch.maximum(one[..., :half], two[..., half:]) for one, two in lists)
        (a, c), (b, d) = _sorted(a, c), _sorted(b, d)
        (a, b), (c, d) = _sorted(a, b), _sorted(c, d)
    return [each[..., 0] for each in (a, b, c, d)]


def _sorted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.maximum(a, b), torch.minimum(a, b)
