"""RAPID in a lossless form: the draft reads only passages retrieved from the document.

Source: Chen et al., RAPID: Long-Context Inference with Retrieval-Augmented Speculative Decoding. In
the paper, passages are retrieved by embeddings of the question, the draft may be as large as the
target, and the target's distribution is moved towards the draft's, which changes the output. Here
BM25 retrieves passages. The question always asks for a summary, so the whole prompt is the query.
The target's distribution is unchanged.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import log

import torch
from torch import Tensor

from specx.bench.runs import draft_model
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.target import Target
from specx.profile import Settings
from specx.records import PrefillProgress

SATURATION, LENGTH = 1.2, 0.75  # BM25's k1 and b
FRAME = 32  # tokens at the prompt's beginning and end, which hold the instruction


class Rapid(ModelDrafter):
    """The draft of a pair, reading only ``top_k`` passages of ``chunk`` tokens and the output.

    Positions are counted in the shortened prompt.
    """

    def __init__(self, settings: Settings, pair: Pair, max_tokens: int) -> None:
        draft, allowed = draft_model(pair, "rapid")
        plan = DraftPlan.of(settings)
        super().__init__(draft, allowed, plan, max_tokens)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        settings = self.draft_plan.cache
        rows = retrieved_rows(prompt.tolist(), settings.chunk, settings.top_k)
        short = prompt[torch.tensor(rows, device=prompt.device)]
        yield from super().prefill(short, target)


def retrieved_rows(prompt: list[int], size: int, most: int) -> list[int]:
    """Return the rows of the ``most`` best passages of ``size`` tokens, and of the frame.

    Rows ascend. The frame is the first and last FRAME tokens of the prompt. Passages are ranked by
    BM25, with the whole prompt as the query.
    """
    inner = range(FRAME, max(FRAME, len(prompt) - FRAME))
    passages = [inner[start : start + size] for start in range(0, len(inner), size)]
    scores = bm25([[prompt[row] for row in passage] for passage in passages])
    best = sorted(range(len(passages)), key=lambda each: -scores[each])[:most]
    chosen = {row for each in best for row in passages[each]}
    return [row for row in range(len(prompt)) if row not in inner or row in chosen]


def bm25(passages: list[list[int]]) -> list[float]:
    """Return the BM25 score of each passage, with all passages as the query."""
    counts = [Counter(passage) for passage in passages]
    containing, total = (Counter(chain.from_iterable(each)) for each in (counts, passages))
    mean = sum(map(len, passages)) / max(1, len(passages))
    weights = {
        token: total[token] * log(1 + (len(passages) - n + 0.5) / (n + 0.5))
        for token, n in containing.items()
    }
    scores = []
    for each, passage in zip(counts, passages, strict=True):
        damping = SATURATION * (1 - LENGTH + LENGTH * len(passage) / mean)
        scores.append(
            sum(weights[t] * n * (SATURATION + 1) / (n + damping) for t, n in each.items())
        )
    return scores
