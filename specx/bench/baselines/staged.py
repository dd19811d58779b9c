"""Staged speculation: lookup drafts for the draft, which drafts for the target.

Source: Spector and Ré, Accelerating LLM Inference with Staged Speculative Decoding. In the paper,
an n-gram model proposes tokens to the draft, and the draft grows a tree. Here lookup proposes
tokens from document and output, and the draft writes a chain. If lookup is right, one pass of the
draft confirms several tokens.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from specx.bench.runs import draft_model
from specx.decoding.lookup import LONGEST, NO_TOKEN, chain_tree, continuation, longest_match
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.target import Target
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.trees import Path, TokenTree
from specx.profile import Settings, TreeSettings
from specx.records import PrefillProgress

DEEPEST = 32  # levels of a tree, at most
PROPOSED = 6  # tokens that lookup proposes at once


class Staged(ModelDrafter):
    """The draft of a pair, with lookup as its own draft.

    It drafts ``tree.depth`` tokens, or more if its last pass accepts several tokens of lookup.
    """

    def __init__(self, settings: Settings, pair: Pair, max_tokens: int) -> None:
        draft, allowed = draft_model(pair, "staged")
        self.wanted = min(settings.tree.depth, DEEPEST - PROPOSED)
        levels = self.wanted + PROPOSED
        tree = TreeSettings(nodes=levels, depth=levels, width=1, threshold=0)
        plan = replace(DraftPlan.of(settings), tree=tree)
        super().__init__(draft, allowed, plan, max_tokens)
        device = self.model.device
        self.looks = device.type == "cpu"  # at how much is written; elsewhere it would wait
        rows = LONGEST + max_tokens + 2 * levels
        self._text = torch.full((rows,), NO_TOKEN, dtype=torch.int64, device=device)
        self._length = torch.zeros(1, dtype=torch.int64, device=device)
        self._anywhere = torch.zeros_like(self._length)
        self._mark = torch.zeros_like(self._length)
        self._chain = AncestorMask(chain_sets(PROPOSED + 1, device), PROPOSED + 1)
        self._rows = torch.arange(levels + 1, device=device)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        self._text.fill_(NO_TOKEN)
        self._text[LONGEST : LONGEST + len(prompt)] = prompt
        self._length.fill_(len(prompt))
        return super().prefill(prompt, target)

    def commit(self, path: Path) -> None:
        super().commit(path)
        self._write(path.tokens, self._length)
        self._length += path.count

    def grow(self, root: Tensor) -> TokenTree:
        """Return the drafted tokens as a chain."""
        working = self.cache.working
        last = self._choices(self.read_pending())
        self._mark.copy_(working.length)
        self._write(last, self._length)
        count = torch.ones_like(self._length)
        for number in range(1, self.wanted):
            if (int(count) if self.looks else 1 + (number - 1) * (PROPOSED + 1)) >= self.wanted:
                break
            proposed = self._proposals(self._length + count)
            choices = self._choices(self._read(torch.cat([last, proposed]), self._chain, 0))
            right = (choices[:-1] == proposed).long().cumprod(0).sum()
            working.commit(right + 1)
            # Choices behind the first that is not lookup's are written over by the next ones.
            self._write(choices, self._length + count)
            last, count = choices.index_select(0, right[None]), count + right + 1
        working.refill(self._mark[0])  # all of it were drafts
        levels = int(count) if self.looks else self.levels
        places = self._rows[:levels]
        written = self._text.index_select(0, LONGEST + self._length + places)
        return chain_tree(root, written, torch.where(places < count, 0.0, -torch.inf))

    def _choices(self, logits: Tensor) -> Tensor:
        return self.model.ops.most_probable(logits, self.grower.forbidden).clamp(min=0)

    def _proposals(self, length: Tensor) -> Tensor:
        place, _ = longest_match(self._text, length, self._anywhere)
        return continuation(self._text, length, place, PROPOSED).clamp(min=0)

    def _write(self, tokens: Tensor, place: Tensor) -> None:
        self._text.index_copy_(0, LONGEST + place + self._rows[: len(tokens)], tokens)
