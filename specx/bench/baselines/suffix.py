"""SuffixDecoding: trees of the continuations of earlier occurrences of the text's end.

Source: Oliaro et al., SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications. In
the paper, a suffix tree holds prompt, output and earlier outputs. A pattern (the last p tokens)
leads to a node, and its subtree has the continuations with their counts. Here the end of the text
is compared with all of the text at every step, in fixed shapes and on the device. This finds the
same nodes and counts for document and output. Earlier outputs are left out, because documents are
independent.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from specx.decoding.drafter import Drafter
from specx.decoding.lookup import LONGEST, NO_TOKEN
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.ops.trees import MAX_ROWS, Path, TokenTree, root_only
from specx.profile import Settings
from specx.records import PrefillProgress

PLACES = 16  # earlier places that are looked at, those with the longest agreement, then the latest
PATTERN = 64  # tokens of the longest pattern
DEPTH = 31  # tokens of a continuation, as lookup's
FACTOR = 2  # nodes of a tree, at most, for each token of its pattern


class SuffixDrafter(Drafter):
    """Proposes the tree with the greatest expected acceptance over all pattern lengths."""

    levels = DEPTH

    def __init__(self, settings: Settings, pair: Pair, max_tokens: int) -> None:
        self.device, self._threshold = pair.target.device, settings.tree.threshold
        # A path may be written behind the text in full, though not all of it stays.
        rows = PATTERN + max_tokens + DEPTH + 1
        self._text = torch.full((rows,), NO_TOKEN, dtype=torch.int64, device=self.device)
        self._length = torch.zeros(1, dtype=torch.int64, device=self.device)

    def begin(self, kept: int = 0) -> bool:  # noqa: ARG002
        return True  # ``prefill`` does it

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        self._text.fill_(NO_TOKEN)
        self._text[PATTERN : PATTERN + len(prompt)] = prompt
        self._length.fill_(len(prompt))
        return iter(())

    def commit(self, path: Path) -> None:
        rows = torch.arange(len(path.tokens), device=self.device)
        self._text.index_copy_(0, PATTERN + self._length + rows, path.tokens)
        self._length += path.count

    def grow(self, root: Tensor) -> TokenTree:
        places, agreed = matching_places(self._text, self._length)
        steps = torch.arange(DEPTH, device=self.device)
        inside = (places[:, None] + steps < self._length) & (agreed > 0)[:, None]
        rows = (PATTERN + places[:, None] + steps).clamp(max=len(self._text) - 1)
        tokens = torch.where(inside, self._text[rows], NO_TOKEN)
        return self._tree(root, tokens, agreed)

    def _tree(self, root: Tensor, tokens: Tensor, agreed: Tensor) -> TokenTree:
        shares, first, pattern = best_trie(tokens, agreed)
        # A node has no greater share than the one above it; of equals that comes first.
        weights, order = shares.T.flatten().sort(descending=True, stable=True)
        numbers = torch.arange(len(weights), device=self.device)
        keeps = (weights >= max(self._threshold, 1e-6)) & (numbers < FACTOR * pattern)
        nodes = MAX_ROWS - 1
        if self.device.type == "cpu":  # where every row costs time, and a look none
            nodes = min(nodes, int(keeps.sum()))
            if not nodes:
                return root_only(root)
        order, valid = order[:nodes], keeps[:nodes]
        depth, place = order // PLACES, order % PLACES
        row_of = torch.zeros(DEPTH * PLACES, dtype=torch.int64, device=self.device)
        row_of[order] = torch.arange(1, nodes + 1, device=self.device)
        above = (depth - 1).clamp(min=0)
        parents = row_of[above * PLACES + first[place, above]]
        zero = torch.zeros_like(root)
        return TokenTree(
            torch.cat([root, tokens[place, depth].clamp(min=0)]),
            torch.cat([zero, parents * (valid & (depth > 0))]),
            torch.cat([zero, torch.where(valid, depth + 1, 1)]),
            torch.cat([zero == 0, valid]),
            levels=DEPTH,
        )


def matching_places(text: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Find the earlier places that match the end of the text: two tensors int64 [PLACES].

    ``text`` int64 [PATTERN + capacity]: PATTERN entries NO_TOKEN, then the text; ``length``
    int64 [1]. The first tensor has the index of the token after each place; the second has the
    number of matching tokens before it, at most PATTERN, 0 for padding. The longest matches come
    first, then the latest.
    """
    capacity = len(text) - PATTERN
    places = torch.arange(capacity, device=text.device)
    window = torch.arange(LONGEST, device=text.device)
    end = text.index_select(0, PATTERN - LONGEST + length + window)
    differs = text[PATTERN - LONGEST :].unfold(0, LONGEST, 1)[:capacity] != end
    agreed = LONGEST - (differs * (window + 1).to(torch.int8)).amax(1).long()
    agreed = agreed.where((places > 0) & (places < length), 0)
    order = torch.topk(agreed * capacity + places, min(PLACES, capacity)).values
    best = torch.zeros(PLACES, dtype=torch.int64, device=text.device)
    best[: len(order)] = order
    found = best % capacity
    back = torch.arange(1, PATTERN + 1, device=text.device)
    same = text[PATTERN + found[:, None] - back] == text[PATTERN + length - back]
    agreed = same.long().cumprod(1).sum(1).where(best >= capacity, 0)
    agreed, order = agreed.sort(descending=True, stable=True)
    return found[order], agreed


def best_trie(tokens: Tensor, agreed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose a pattern and return the trie of its continuations.

    ``tokens`` int64 [PLACES, DEPTH], NO_TOKEN after the text; ``agreed`` int64 [PLACES],
    descending. Places whose continuations begin with the same tokens share nodes, stored at the
    first such place. Returns float32 [PLACES, DEPTH]: the share of the pattern's places that lead
    to a node, 0 where no node is stored; int64 [PLACES, DEPTH]: the place at which the node is
    stored; and int64 [1]: the pattern's length. The chosen pattern is the one whose tree, with
    FACTOR nodes for each of its tokens, has the highest expected acceptance; ties go to the
    longest.
    """
    numbers = torch.arange(len(tokens), device=tokens.device)
    equal = (tokens[:, None] == tokens[None]) & (tokens > NO_TOKEN)
    alike = equal.to(torch.int8).cumprod(2).float()  # [place, place, depth]
    # Places of the pattern of each place: those that agree at least as far.
    chosen = ((agreed >= agreed[:, None]) & (agreed > 0)[:, None]).float()
    counts = torch.einsum("pj,jkd->pkd", chosen, alike) * chosen[:, :, None]
    # The first of places that are alike agrees the furthest, so every pattern of theirs has it.
    first = (alike * (len(tokens) - numbers)[:, None, None]).argmax(0)
    own = first == numbers[:, None]
    shares = counts * own / chosen.sum(1).clamp(min=1)[:, None, None]
    best = shares.flatten(1).topk(MAX_ROWS - 1, dim=1).values
    gain = best.cumsum(1).gather(1, (FACTOR * agreed).clamp(1, MAX_ROWS - 1)[:, None] - 1)
    pattern = (gain[:, 0] * (agreed > 0) - 1e-6 * numbers).argmax()[None]
    return shares.index_select(0, pattern)[0], first, agreed.index_select(0, pattern)
