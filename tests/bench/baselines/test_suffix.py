"""Suffix decoding: its trees are those of a suffix tree that is built token by token."""

import random
from collections import defaultdict

import pytest
import torch

from specx.bench.baselines import suffix
from specx.bench.baselines.suffix import DEPTH, FACTOR, PATTERN, SuffixDrafter
from specx.bench.methods import METHODS
from specx.ops.trees import Path
from tests.bench.baselines.drafting import check, likely_pair, resolved, small_profile
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of


class SuffixTrie:
    """Every sequence of a text with the number of its places, the plain way."""

    def __init__(self, text: list[int], longest: int) -> None:
        self.text = text
        self.counts: dict[tuple[int, ...], int] = defaultdict(int)
        for start in range(len(text)):
            for end in range(start, min(len(text), start + longest) + 1):
                self.counts[tuple(text[start:end])] += 1

    def best_tree(self, nodes: int) -> set[tuple[int, ...]]:
        """The paths of the tree that the best pattern leads to."""
        best: tuple[float, set[tuple[int, ...]]] = (0.0, set())
        for length in range(min(PATTERN, len(self.text) - 1), 0, -1):
            pattern = tuple(self.text[-length:])
            places = self.counts[pattern] - 1  # one is the end of the text itself
            if not places:
                continue
            children = {
                path[length:]: count / places
                for path, count in self.counts.items()
                if len(path) > length and path[:length] == pattern
            }
            chosen = sorted(children, key=lambda path: (-children[path], len(path)))
            chosen = chosen[: min(nodes, FACTOR * length)]
            gain = sum(children[path] for path in chosen)
            if gain > best[0] + 1e-5:
                best = gain, set(chosen)
        return best[1]


def drafter_behind(text: list[int]) -> SuffixDrafter:
    profile = make_profile(tree={"nodes": 3, "depth": 3, "threshold": 0})
    drafter = SuffixDrafter(resolved(profile, pair_of(loaded())), pair_of(loaded()), 400)
    list(drafter.prefill(torch.tensor(text[:-3]), None))
    tokens = torch.tensor([*text[-3:], 1, 1])  # a path that is only accepted in part
    drafter.commit(Path(torch.zeros(5, dtype=torch.int64), tokens, torch.tensor(3)))
    return drafter


@pytest.mark.parametrize("seed", range(12))
def test_trees_are_those_of_a_suffix_tree(seed, monkeypatch):
    """Ties among nodes are decided otherwise, so what is compared is what they are worth."""
    monkeypatch.setattr(suffix, "PLACES", 64)  # all that agree
    chosen = random.Random(seed)
    text = chosen.choices(range(2 + seed % 4), k=60)
    text += text[10 : 10 + seed]
    trie = SuffixTrie(text, PATTERN + DEPTH)
    tree = drafter_behind(text).grow(torch.tensor(text[-1:]))
    found, expected = paths_of(tree), trie.best_tree(63)

    def worth(paths):
        lengths = [n for n in range(1, 60) if trie.counts[tuple(text[-n:])] > 1]
        return max(
            sum(trie.counts[(*text[-n:], *path)] for path in paths)
            / (trie.counts[tuple(text[-n:])] - 1)
            for n in lengths
        )

    assert len(found) == len(expected)
    assert worth(found) == pytest.approx(worth(expected))


def test_the_continuation_that_is_frequent_outweighs_a_rare_one():
    text = [1, 2, 3, 9, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2]
    tree = drafter_behind(text).grow(torch.tensor([2]))
    assert sorted(paths_of(tree))[:2] == [(3,), (3, 9)]


def test_nothing_is_drafted_where_nothing_returns():
    assert drafter_behind(list(range(10, 30))).grow(torch.tensor([29])).nodes == 0


@pytest.mark.parametrize("length", [1, 60])
def test_the_text_is_the_targets_own(length):
    pair, profile = likely_pair(), small_profile(max_new_tokens=60)
    check(
        lambda n: SuffixDrafter(resolved(profile, pair), pair, n),
        pair,
        profile,
        make_prompt(length),
    )


def test_copied_text_is_accepted():
    model = loaded(**{**SURE, "peak": 100.0, "attention": 0.0})  # repeats itself
    pair, profile = pair_of(model), make_profile(max_new_tokens=60)
    result = check(
        lambda n: SuffixDrafter(resolved(profile, pair), pair, n), pair, profile, make_prompt(20)
    )
    assert max(result.accepted) > 3


def test_no_draft_is_needed():
    METHODS["suffix"].check(make_profile().changed(draft=None))
