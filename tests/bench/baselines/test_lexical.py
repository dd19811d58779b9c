"""Overlap of rare tokens, against the same computed with sets."""

import math

import torch

from specx.bench.baselines.chunks import Lexical
from specx.kernels.trees import Path
from specx.profile import DraftCacheSettings
from tests.bench.baselines.test_random_chunks import cache_of

CHUNK, VOCAB = 4, 12
SETTINGS = DraftCacheSettings(policy="streaming", chunk=CHUNK, top_k=3, sink=0)


def chunks_of(text: list[int]) -> list[set[int]]:
    return [set(text[start : start + CHUNK]) for start in range(0, len(text), CHUNK)]


def expected(prompt: list[int], text: list[int]) -> list[int]:
    """The chunks of ``text`` with the greatest overlap with its end, and the newest one."""
    known = chunks_of(prompt)
    recent = set(text[-CHUNK:])

    def weight(token: int) -> float:
        return math.log((len(known) + 1) / (1 + sum(token in chunk for chunk in known)))

    scores = [sum(weight(token) for token in chunk & recent) for chunk in chunks_of(text)]
    newest = len(scores) - 1
    others = sorted(range(newest), key=lambda chunk: -scores[chunk])[:2]
    assert scores[others[-1]] > max(
        (scores[chunk] for chunk in range(newest) if chunk not in others), default=-1
    ), "the example has a tie"
    return sorted([*others, newest])


def memory_of(prompt: list[int]) -> Lexical:
    memory = Lexical(SETTINGS, VOCAB, 20, torch.device("cpu"))
    memory.begin(torch.tensor(prompt))
    return memory


PROMPT = [1, 2, 3, 3, 3, 4, 5, 5, 3, 6, 7, 1, 3, 8, 8, 9, 3, 10, 1, 2, 6, 5]


def choose(memory: Lexical, length: int) -> list[int]:
    return memory.choose(cache_of(length), None).tolist()


def test_chunks_that_share_rare_tokens_with_the_end_are_chosen():
    for length in (20, 15, 14, 13):
        prompt = PROMPT[:length]
        assert choose(memory_of(prompt), length) == expected(prompt, prompt)


def test_what_is_emitted_counts_as_the_end():
    memory, text = memory_of(PROMPT), list(PROMPT)
    for tokens, count in (([8, 9, 4], 1), ([9, 4, 4], 2), ([4, 3, 3], 1), ([6, 7, 7], 2)):
        path = torch.tensor(tokens)
        memory.append(Path(torch.zeros_like(path), path, torch.tensor(count)))
        text += tokens[:count]
    assert choose(memory, len(text)) == expected(PROMPT, text)
    assert choose(memory, len(text)) != choose(memory_of(PROMPT), len(PROMPT))
