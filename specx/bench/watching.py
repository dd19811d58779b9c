"""What every head of a layer of the target attended to, at every token of a known output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from specx.engine.forward import cache_shape, forward
from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.torch.scores import attention_row
from specx.kernels.trees import MAX_ROWS
from specx.models.call import AttentionCall, Watched, single_sets, words_for
from specx.models.load import LoadedModel


@dataclass(frozen=True)
class Look:
    """``scores`` float32 [Hq, chunks]: mean attention of a head to each chunk of the text, the
    token that looks included. ``place``: that token's in the output, from 0."""

    place: int
    scores: Tensor


class Watcher:
    """A target that has read a prompt and then reads an output, once for each layer."""

    def __init__(self, target: LoadedModel, read: Tensor, tokens: Sequence[int]) -> None:
        """``read``: of ``read_beginning``, so without the last token of the prompt; ``tokens``:
        that one and the output."""
        self._target = target
        self._tokens = torch.tensor(tokens, device=target.device)
        self._prompt = read.shape[3]
        capacity = self._prompt + len(tokens) + MAX_ROWS
        self._cache = PreallocatedCache(cache_shape(target), capacity)
        self._cache.storage[:, :, :, : self._prompt] = read

    @torch.inference_mode()
    def looks(self, layer: int, chunk: int) -> Iterator[Look]:
        """What each token of the output attended to in a layer, by chunks of ``chunk`` tokens."""
        cache, target = self._cache, self._target
        cache.refill(torch.tensor(self._prompt, device=target.device))
        attention = target.model.get_decoder().layers[layer].self_attn
        for start in range(0, len(self._tokens), MAX_ROWS):
            tokens = self._tokens[start : start + MAX_ROWS]
            watched = self._read(layer, tokens)
            keys = cache.keys_of(layer)
            for row in range(len(tokens)):
                # The first token here is the last of the prompt.
                seen = keys[:, : self._prompt + start + row + 1]
                query, lse = watched.queries[:, row], watched.lse[:, row]
                attended = attention_row(query, seen, attention.scaling, lse)
                if start + row > 0:
                    yield Look(start + row - 1, chunk_means(attended, chunk))

    def _read(self, layer: int, tokens: Tensor) -> Watched:
        """The next tokens become text; what they asked the layer."""
        target, cache, rows = self._target, self._cache, len(tokens)
        shape = (target.num_heads, rows)
        watched = Watched(
            layer,
            torch.zeros(*shape, target.head_dim, dtype=target.dtype, device=target.device),
            torch.zeros(shape, device=target.device),
        )
        chain = single_sets(0, rows, words_for(rows), target.device).cumsum(0)
        call = AttentionCall("tree", 0, prefix=cache.length, visible=chain, watched=watched)
        positions = cache.length + torch.arange(rows, device=target.device)
        forward(target, tokens, positions, cache, call, logits_of=1)
        cache.commit(rows)
        return watched


def chunk_means(attended: Tensor, chunk: int) -> Tensor:
    """Mean over the tokens of each chunk: [Hq, L] -> [Hq, ceil(L / chunk)]; the last may be
    short."""
    missing = -attended.shape[1] % chunk
    sums = pad(attended, (0, missing)).unflatten(1, (-1, chunk)).sum(-1)
    sizes = torch.full((sums.shape[1],), chunk, device=sums.device)
    sizes[-1] -= missing
    return sums / sizes
