"""Measure what a known output depends on: passages of the document that are left out of it.

It takes a prefill for each passage, so it serves measurements alone. Attention is held against it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specx.decoding.forward import PREFILL_CHUNK, cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import KeptQueries, PrefillCall
from specx.models.load import LoadedModel
from specx.ops.chunks import PASSAGE


class LeaveOut:
    """An output behind its prompt, read by the target again and again.

    ``lost`` [P, M]: nats that each token of the output loses without a passage. ``attention``
    [layers, M, P]: as ``Ops.passage_attention`` has it, for each of the model's ``full_layers``.
    """

    def __init__(
        self, model: LoadedModel, prompt: Sequence[int], output: Sequence[int], document: range
    ) -> None:
        """Measure. ``document``: its places in the prompt."""
        self._model, self._document = model, document
        self._output = torch.tensor(output, device=model.device)
        # The last token of the output predicts nothing.
        self._text = torch.tensor([*prompt, *output[:-1]], device=model.device)
        self._cache = PreallocatedCache(cache_shape(model), len(self._text))
        with torch.inference_mode():
            self.attention, whole = self._read_whole(len(prompt))
            # The last first: the cache keeps what is in front of a passage.
            starts = reversed(range(0, len(document), PASSAGE))
            lost = [self._without(document[at : at + PASSAGE]) - whole for at in starts]
        self.lost = torch.stack(lost[::-1]).cpu()

    def _read_whole(self, prompt: int) -> tuple[Tensor, Tensor]:
        """Return the attention of all layers, and the nats of each token with everything there."""
        model, rows = self._model, len(self._output)
        kept = []
        for layer in model.full_layers:
            heads, dim = model.query_shape(layer)
            shape = heads, rows, dim
            kept.append(KeptQueries.empty(layer, shape, model.dtype, model.device, lse=False))
        self._read(0, self._text[: prompt - 1], logits_of=1)
        logits = self._read(prompt - 1, self._text[prompt - 1 :], logits_of=rows, kept=tuple(kept))
        attention = [
            model.ops.passage_attention(
                each.queries,
                self._cache.keys_of(each.layer),
                prompt,
                self._document,
                model.scaling_of(each.layer),
            )
            for each in kept
        ]
        return torch.stack(attention).cpu(), self._nats(logits)

    def _without(self, passage: range) -> Tensor:
        """Return the nats of each token where a passage is left out: [M]."""
        logits = self._read(passage.start, self._text[passage.stop :], logits_of=len(self._output))
        return self._nats(logits)

    def _read(
        self, start: int, tokens: Tensor, *, logits_of: int, kept: tuple[KeptQueries, ...] = ()
    ) -> Tensor:
        """Read tokens behind the first ``start`` rows; return the logits of the last ones."""
        model, cache = self._model, self._cache
        cache.refill(torch.tensor(start))
        # The last chunk has all rows whose logits are wanted.
        chunk, logits, done = PREFILL_CHUNK[model.device.type], None, 0
        for end in [*range(chunk, len(tokens) - logits_of, chunk), len(tokens)]:
            past = start + done
            call = PrefillCall(
                ops=model.ops, mapping=cache.mapping(end - done), kept=kept, past=past
            )
            positions = torch.arange(past, start + end, device=tokens.device)
            logits = model.model.run(tokens[done:end], positions, call, logits_of)
            cache.commit(end - done)
            done = end
        assert logits is not None
        return logits

    def _nats(self, logits: Tensor) -> Tensor:
        """Return the negative log-probability of each token of the output: [M]."""
        chosen = logits.float().log_softmax(-1).gather(1, self._output[:, None])
        return -chosen[:, 0]
