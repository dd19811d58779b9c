"""The target's choice of a token from its logits: the most probable one, or a draw."""

import torch
from torch import Tensor

from specx.ops.contract import Ops
from specx.ops.penalties import Penalties, TextSoFar
from specx.ops.trees import NO_CHOICE, Path, TokenTree, root_only
from specx.profile import Sampling


class Sampler:
    """Chooses tokens by output position, so that every method draws alike.

    The number that decides position i of the output is the i-th of one seeded stream, whatever
    tree position i is reached by. Speculative and plain decoding therefore not only have the same
    distribution: with the same seed they write the same text. ``allowed``: bool [V]; ids outside
    the tokenizer never win, and checkpoints pad their vocabulary. ``limit``: tokens of prompt and
    output, and as many more as trees may reach beyond them.

    Penalties are on what stands before each row of a tree: prompt, output and its own ancestors. So
    they are exact for every tree, too.
    """

    def __init__(self, settings: Sampling, allowed: Tensor, limit: int, ops: Ops) -> None:
        self.ops, self.greedy = ops, settings.temperature == 0
        self._forbidden = _without(~allowed, settings.suppress_tokens)
        self._forbidden_first = _without(self._forbidden, settings.begin_suppress_tokens)
        self._penalties = Penalties(
            repetition=settings.repetition_penalty,
            presence=settings.presence_penalty,
            frequency=settings.frequency_penalty,
            ngram=settings.no_repeat_ngram,
        )
        self._text = None
        if settings.penalizes:
            self._text = TextSoFar.on(allowed.device, len(allowed), limit)
        self._settings = settings
        generator = torch.Generator().manual_seed(settings.seed)
        stream = torch.rand(limit, generator=generator, dtype=torch.float64)
        self._uniform = stream.to(allowed.device)

    @property
    def penalizes(self) -> bool:
        """True if the choice depends on what the text has already."""
        return self._text is not None

    def first(self, logits: Tensor, prompt: Tensor) -> Tensor:
        """Choose the first token of the output behind ``prompt`` int64 [L]: int64 [1].

        logits [1, V] may be overwritten. What was before is forgotten.
        """
        if self._text is not None:
            self._text.begin(prompt)
            logits = self._penalized(logits, root_only(prompt[-1:]))
        token = self._choose(logits, 0, torch.zeros_like(prompt[-1:]), self._forbidden_first)
        self.keep(Path.of(token).readable())
        return token

    def follow(self, logits: Tensor, tree: TokenTree, emitted: Tensor) -> Tensor:
        """Choose a token behind each row of a tree: int64 [T].

        logits [T, V] may be overwritten; ``emitted`` int64 [1]: tokens of the output so far.
        """
        return self.choose(self._penalized(logits, tree), emitted, tree.depths)

    def keep(self, path: Path) -> None:
        """Note what a step emits, which is text for the next."""
        if self._text is not None:
            self._text.append(path)

    def choose(self, logits: Tensor, first: Tensor | int, offsets: Tensor) -> Tensor:
        """Choose a token for each row of logits [T, V], whatever the text has already: int64 [T].

        ``NO_CHOICE`` where logits are not finite, as in ``Ops.most_probable``.
        ``first + offsets`` (int64 [1], [T]): the place in the output that each row decides.
        """
        return self._choose(logits, first, offsets, self._forbidden)

    def _penalized(self, logits: Tensor, tree: TokenTree) -> Tensor:
        if self._text is None:
            return logits
        return self.ops.penalize(logits, tree, self._text, self._penalties)

    def _choose(
        self, logits: Tensor, first: Tensor | int, offsets: Tensor, forbidden: Tensor
    ) -> Tensor:
        if self.greedy:
            return self.ops.most_probable(logits, forbidden)
        logits = logits.float().masked_fill(forbidden, -torch.inf)
        probabilities = warped(logits, self._settings).softmax(-1).double()
        # Inverse transform sampling, one number a position. The cumulated sum is in float64: a
        # vocabulary of 100,000 adds up more rounding than float32 can hide.
        cumulated = probabilities.cumsum(-1)
        goal = self._uniform[first + offsets][:, None] * cumulated[:, -1:]
        chosen = torch.searchsorted(cumulated, goal, right=True).squeeze(-1)
        return chosen.where(cumulated[:, -1].isfinite(), NO_CHOICE)


def _without(forbidden: Tensor, ids: tuple[int, ...]) -> Tensor:
    """Return bool [V], ``forbidden`` and those ``ids`` that there are."""
    known = torch.tensor([i for i in ids if i < len(forbidden)], dtype=torch.int64)
    return forbidden.index_fill(0, known.to(forbidden.device), True)


def warped(logits: Tensor, settings: Sampling) -> Tensor:
    """Return logits [T, V] to draw from: as transformers' ``generate`` has them, in its order.

    Temperature divides; of what is left ``top_k`` keeps the best and all that equal the last of
    them, ``top_p`` the likeliest until they have that share, ``min_p`` those with that share of the
    likeliest one's probability. The others get −inf.
    """
    if settings.temperature not in (0, 1):
        logits = logits / settings.temperature
    if settings.top_k:
        least = logits.topk(min(settings.top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if settings.top_p < 1:
        ascending, order = logits.sort()
        # In float64: one row and several are added up in another order on a GPU.
        unlikely = ascending.softmax(-1).double().cumsum(-1) <= 1 - settings.top_p
        unlikely[:, -1] = False
        logits = logits.masked_fill(unlikely.scatter(1, order, unlikely), -torch.inf)
    if settings.min_p:
        probabilities = logits.softmax(-1)
        least = settings.min_p * probabilities.amax(-1, keepdim=True)
        logits = logits.masked_fill(probabilities < least, -torch.inf)
    return logits
