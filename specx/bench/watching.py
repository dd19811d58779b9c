"""The attention of every head of a layer of the target, at every token of a known output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from specx.bench.baselines.chain import unbranched_tree
from specx.bench.prefill import restore
from specx.decoding.target import Target
from specx.models.load import LoadedModel
from specx.ops.torch.scores import attention_row
from specx.ops.trees import MAX_ROWS, Path


@dataclass(frozen=True)
class TokenAttention:
    """``scores`` float32 [Hq, chunks]: mean attention of a head to each chunk of the text, the
    token that looks included. ``place``: that token's in the output, from 0."""

    place: int
    scores: Tensor


@torch.inference_mode()
def looks(
    model: LoadedModel, read: Tensor, tokens: Sequence[int], layer: int, chunk: int
) -> Iterator[TokenAttention]:
    """Read an output and tell what each of its tokens attended to, by chunks of ``chunk`` tokens.

    ``read``: of ``read_beginning``, so without the last token of the prompt; ``tokens``: that one
    and the output.
    """
    prompt = read.shape[3]
    target = Target(model, prompt + len(tokens) + MAX_ROWS, layer)
    restore(target, read)
    retrieval, ids = target.retrieval, torch.tensor(tokens, device=model.device)
    assert retrieval is not None
    sums = retrieval.lse
    assert sums is not None
    scaling = model.scaling_of(layer)
    for start in range(0, len(ids), MAX_ROWS):
        tree = unbranched_tree(ids[start : start + MAX_ROWS])
        target.verify(tree)
        target.keep(Path(tree.depths, tree.tokens, torch.tensor(len(tree.tokens))))
        keys = target.cache.keys_of(layer)
        for row in range(len(tree.tokens)):
            # The first token here is the last of the prompt.
            seen = keys[:, : prompt + start + row + 1]
            query, lse = retrieval.queries[:, row], sums[:, row]
            attended = attention_row(query, seen, scaling, lse)
            if start + row > 0:
                yield TokenAttention(start + row - 1, chunk_means(attended, chunk))


def chunk_means(attended: Tensor, chunk: int) -> Tensor:
    """Return the mean over the tokens of each chunk: [Hq, L] -> [Hq, ceil(L / chunk)]; the last
    may be short."""
    missing = -attended.shape[1] % chunk
    sums = pad(attended, (0, missing)).unflatten(1, (-1, chunk)).sum(-1)
    sizes = torch.full((sums.shape[1],), chunk, device=sums.device)
    sizes[-1] -= missing
    return sums / sizes
