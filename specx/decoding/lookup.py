"""Draft without a model: propose the tokens that followed an earlier occurrence of the text's end.

This is the idea of prompt lookup, RASD and SuffixDecoding, with fixed shapes and without waiting
for the device. The probability that a continuation is right is learned while the text is written.
"""

import torch
from torch import Tensor

REACH = 31  # tokens of a chain that stands alone: copied sentences are about as long
LONGEST = 8  # tokens of the text's end that are compared with what is before
NO_TOKEN = -1  # stands before the text, where comparing begins; no token of a text equals it
# Share of continuations that go on as before, by how many tokens agreed (0: no such place), until
# the text at hand has shown its own. What repeats by chance agrees in a token or two.
PRIOR = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
PRIOR_STRENGTH = 2.0  # seen tokens that the prior is worth


def longest_match(text: Tensor, length: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Find the longest earlier match of the text's end; ties go to ``expected``, then the latest.

    Returns the index of the token after the match, int64 [1], and the length of the match, int64
    [1]: at most LONGEST, 0 without a match.

    ``text`` int64 [LONGEST + capacity]: LONGEST times NO_TOKEN, then the tokens; ``length`` int64
    [1]: number of tokens, at least 1; ``expected`` int64 [1]: an index.
    """
    capacity = len(text) - LONGEST
    places = torch.arange(capacity, device=text.device)
    window = torch.arange(LONGEST, device=text.device)
    differs = text.unfold(0, LONGEST, 1)[:capacity] != text.index_select(0, length + window)
    # The nearest token that differs ends the agreement; the farthest is number 1.
    agreed = LONGEST - (differs * (window + 1).to(torch.int8)).amax(1).long()
    agreed = agreed.where((places > 0) & (places < length), 0)
    preference = (2 * agreed + (places == expected)) * capacity + places
    place = preference.argmax()[None]
    return place, agreed[place]


def continuation(text: Tensor, length: Tensor, place: Tensor, depth: int) -> Tensor:
    """Return the ``depth`` tokens from index ``place`` on: int64 [depth].

    If the text ends earlier, its tokens from ``place`` on are repeated.
    """
    steps = torch.arange(depth, device=text.device)
    period = (length - place).clamp(min=1)
    return text[LONGEST + place + steps % period]


class Lookup:
    """The text of one document, and its expected continuation.

    ``chain`` int64 [depth]: the continuation found; ``weights`` float32 [depth]: log-probability
    that the chain is right up to each token, −inf if nothing was found. ``length`` int64 [1]:
    tokens of the text. All are changed in place.
    """

    def __init__(self, depth: int, capacity: int, device: torch.device) -> None:
        """``capacity``: the maximum number of tokens of the text."""
        self.chain = torch.zeros(depth, dtype=torch.int64, device=device)
        self.weights = torch.zeros(depth, device=device)
        self.length = torch.zeros(1, dtype=torch.int64, device=device)
        # A path may be written behind the text in full, though not all of it stays.
        rows = LONGEST + capacity + depth + 1
        self._text = torch.zeros(rows, dtype=torch.int64, device=device)
        # The latest match, as ``longest_match`` has it.
        self._place, self._agreed = torch.zeros_like(self.length), torch.zeros_like(self.length)
        self._prior = PRIOR_STRENGTH * torch.tensor(PRIOR, device=device)
        self._tried, self._right = torch.zeros_like(self._prior), torch.zeros_like(self._prior)

    @property
    def gain(self) -> Tensor:
        """The expected number of right tokens at the beginning of the chain: float32 []."""
        return self.weights.exp().sum()

    def begin(self, prompt: Tensor) -> None:
        """Start a text with ``prompt`` int64 [L], forgetting the old one."""
        self._text.fill_(NO_TOKEN)
        self._text[LONGEST : LONGEST + len(prompt)] = prompt
        self.length.fill_(len(prompt))
        self.chain.zero_()
        self.weights.fill_(-torch.inf)
        self._place.zero_()
        self._agreed.zero_()
        self._tried.fill_(PRIOR_STRENGTH)
        self._right.copy_(self._prior)

    def append(self, tokens: Tensor, count: Tensor) -> None:
        """Append the first ``count`` (int64 []) of ``tokens`` (int64 [n]) to the text.

        Learn from them, and find the next continuation.
        """
        self._learn(tokens, count)
        rows = torch.arange(len(tokens), device=tokens.device)
        self._text.index_copy_(0, LONGEST + self.length + rows, tokens)
        self.length += count
        # Where the text goes on as it did, that place is as good as any other; there is no place 0.
        expected = torch.where(self._agreed > 0, self._place + count, 0)
        place, agreed = longest_match(self._text, self.length, expected)
        self._place.copy_(place)
        self._agreed.copy_(agreed)
        chain = continuation(self._text, self.length, place, len(self.chain))
        self.chain.copy_(chain)
        chances = (self._right / self._tried)[self._agreements()]
        self.weights.copy_(torch.where(agreed > 0, chances.log().cumsum(0), -torch.inf))

    def read(self, start: Tensor, count: int) -> Tensor:
        """Return ``count`` tokens from ``start`` (int64 [1]) on; padding is token 0."""
        rows = start + torch.arange(count, device=start.device)
        return self._text[(LONGEST + rows).clamp(max=len(self._text) - 1)].clamp(min=0)

    def _agreements(self) -> Tensor:
        """Count the matching tokens before each chain token, if all earlier ones are right."""
        steps = torch.arange(len(self.chain), device=self.chain.device)
        return (self._agreed + steps).clamp(max=LONGEST)

    def _learn(self, tokens: Tensor, count: Tensor) -> None:
        """Count the tokens of the chain that turned out right.

        The emitted tokens show that, even if the chain was not in the tree.
        """
        known = min(len(tokens), len(self.chain))
        right = self.chain[:known] == tokens[:known]
        rights = right.long().cumprod(0)
        reached = torch.cat([torch.ones_like(rights[:1]), rights[:-1]])
        emitted = torch.arange(known, device=tokens.device) < count
        tried = (reached.bool() & emitted & (self._agreed > 0)).float()
        agreements = self._agreements()[:known]
        self._tried.index_add_(0, agreements, tried)
        self._right.index_add_(0, agreements, tried * right)
