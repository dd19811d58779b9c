"""Cross-model retrieval whose chunks end where sentences end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from specx.bench.cases import Case
from specx.bench.runs import Run, Setting, run_drafter
from specx.bench.sentence_borders import sentence_numbers
from specx.engine.draft_cache import DraftCache
from specx.engine.drafter import Drafter
from specx.engine.methods import watched_layer
from specx.engine.model_drafter import DraftPlan, ModelDrafter
from specx.engine.target import Target
from specx.errors import UsageError
from specx.profile import DraftCacheSettings, Profile


@dataclass(frozen=True)
class SentenceMemory:
    """The sentences with the highest mean attention, as far as they fit whole into ``budget``
    tokens; the newest is always among them.

    ``sentence`` int64 [longest text]: number of each token's sentence, ascending from 0 without
    gaps; no sentence has more than ``budget`` tokens. What is chosen are rows, which to the draft
    are chunks of one token: sentences differ in size, and the shapes of a step must not.
    """

    sentence: Tensor
    budget: int
    watch: int

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        length, sentence = cache.store.length, self.sentence
        place = torch.arange(len(sentence), device=length.device)
        is_text = place < length
        scores = target.chunk_scores(1, length).to(length.device)[: len(sentence)]
        means, sizes = self._by_sentence(scores.where(is_text, 0.0), is_text)
        newest = sentence[length - 1]
        order = means.scatter(0, newest, torch.inf).argsort(descending=True)
        fits = sizes[order].cumsum(0) <= self.budget
        chosen = torch.zeros_like(fits).scatter(0, order, fits)
        rows = place.where(chosen[sentence] & is_text, len(sentence))
        return rows.sort().values[: self.budget]

    def _by_sentence(self, scores: Tensor, is_text: Tensor) -> tuple[Tensor, Tensor]:
        """Mean score of each sentence, −inf for those not yet written, and sizes in tokens."""
        empty = torch.zeros_like(scores)  # there are at most as many sentences as tokens
        sums = empty.index_add(0, self.sentence, scores)
        sizes = empty.long().index_add(0, self.sentence, is_text.long())
        return torch.where(sizes > 0, sums / sizes, -torch.inf), sizes


@dataclass(frozen=True)
class SentenceChunks:
    """``specextend`` that retrieves sentences, in a working cache of the same size.

    ``even``: instead of sentences, as many chunks of their mean size. All else is the same, the
    request as a chunk of its own too, so that what is left is where the borders are.
    """

    name: str
    about: str
    even: bool = False

    def check(self, profile: Profile) -> None:
        if profile.draft is None:
            raise UsageError(f"profile {profile.name} has no draft, so it cannot run {self.name}")

    def run(self, setting: Setting, case: Case) -> Run:
        cache = setting.profile.draft_cache
        tokenizer = setting.pair.target.tokenizer
        # Twice a chunk: one rambling sentence must not fill the working cache.
        longest = min(2 * cache.chunk, cache.chunk * cache.top_k)
        numbers = sentence_numbers(tokenizer, case.ids, longest)
        if self.even:
            numbers = evenly(numbers)
        run = run_drafter(self.name, partial(_drafter, setting, numbers), setting, case)
        return replace(run, facts={"sentences": numbers[-1] + 1})


def evenly(numbers: Sequence[int]) -> list[int]:
    """As many chunks as there are sentences, of equal size but for the last one, which stays."""
    last = numbers[-1]
    tokens = len(numbers) - numbers.count(last)
    return [*(place * last // tokens for place in range(tokens)), *numbers[tokens:]]


def _drafter(setting: Setting, numbers: Sequence[int], max_tokens: int) -> Drafter:
    pair, cache = setting.pair, setting.profile.draft_cache
    assert pair.draft is not None
    assert pair.draft_allowed is not None
    budget = cache.chunk * cache.top_k
    sentence = torch.tensor(with_output(numbers, max_tokens, cache.chunk), device=pair.draft.device)
    memory = SentenceMemory(sentence, budget, watched_layer(cache, pair.target))
    settings = cache.model_copy(update={"chunk": 1, "top_k": budget})
    plan = DraftPlan(setting.profile.tree, settings, memory)
    return ModelDrafter(pair.draft, pair.draft_allowed, plan, max_tokens)


def with_output(numbers: Sequence[int], max_tokens: int, chunk: int) -> list[int]:
    """Sentence numbers of prompt and output: what will be written counts as chunks of fixed size,
    because nobody knows yet where its sentences end. The first goes on behind the prompt's last
    sentence, as far as a chunk reaches: the request and the beginning of the answer."""
    last = numbers[-1]
    shared = max(0, chunk - numbers.count(last))
    rest = range(max_tokens - len(numbers) - shared)
    return [*numbers, *shared * [last], *(last + 1 + place // chunk for place in rest)][:max_tokens]


def fixed_settings(cache: DraftCacheSettings, chunk: int) -> dict[str, int]:
    """Settings of chunks of another fixed size in a working cache of the same size."""
    return {"chunk": chunk, "top_k": cache.chunk * cache.top_k // chunk}
