"""The dial of a draft's agreement: where its first choice stands among its choices, by position.

For each position of the output a rank is drawn. The first choice of the base draft moves to that
rank, or is left out, which is a miss. The probabilities of the ranks are known, so a tree sees what
is true on average. ``baselines/dialled.py`` is the draft at work.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate

from specx.errors import UsageError
from specx.profile import TreeSettings

RANKS = 10  # children of a node that may be right
REFERENCE = TreeSettings(nodes=60, depth=8, threshold=0.0)  # its acceptance length names a setting
SETTINGS = (1.5, 2.0, 2.4, 3.0, 4.0, 6.0)
HALVINGS = 30  # of the interval in which a setting is looked for

Chosen = tuple[int, ...]  # the ranks, from 0, that lead from the root to a node


@dataclass(frozen=True)
class Dial:
    """A draft whose first choice is right with ``sure`` of the base draft's ``agreement``.

    If the choices before it are wrong, choice r is right with ``sure`` / r, which lies between what
    two public heads reach as a chain and as a tree
    (``docs/notes/2026-11-23-expectation.md``). ``agreement``: how often the base draft's first
    choice is the target's.
    """

    sure: float
    agreement: float
    seed: int = 0

    @cached_property
    def ranks(self) -> tuple[float, ...]:
        """The probability of each rank; what they lack of 1 is that of a miss."""
        found, left = [], 1.0
        for rank in range(1, RANKS + 1):
            found.append(left * self.sure / rank)
            left -= found[-1]
        return tuple(found)

    @cached_property
    def expected(self) -> tuple[float, ...]:
        """The probability with which each choice is the target's: what a tree is to see."""
        return tuple(self.agreement * rank for rank in self.ranks)

    def rank_of(self, uniform: float) -> int:
        """Return the rank, from 0, that a number in [0, 1) draws; RANKS is a miss."""
        return bisect_right(self._sums, uniform)

    @cached_property
    def _sums(self) -> list[float]:
        return list(accumulate(self.ranks))


def uniforms(seed: int, document: str, positions: Sequence[int]) -> list[float]:
    """Return a number in [0, 1) for each position: a hash of seed, document and position.

    Neither tree nor method nor the length of the text matters, so a redraft draws the same.
    """
    return [_uniform(f"{seed} {document} {position}") for position in positions]


def _uniform(text: str) -> float:
    digest = blake2b(text.encode(), digest_size=7).digest()  # 53 bits and a few: exact in a float
    return (int.from_bytes(digest, "big") >> 3) / 2**53


def fixed_tree(expected: Sequence[float], tree: TreeSettings) -> frozenset[Chosen]:
    """Return the likeliest nodes of a tree whose nodes all have children as likely as ``expected``.

    Ties go to the shallower node, as in ``Ops.best_tree``.
    """
    found: set[Chosen] = set()
    waiting: list[tuple[float, int, Chosen]] = [(-expected[0], 1, (0,))]
    while waiting and len(found) < tree.nodes:
        weight, _, node = heapq.heappop(waiting)
        if weight == 0:
            break
        found.add(node)
        for child, factor in _next_nodes(node, expected, tree.depth):
            heapq.heappush(waiting, (weight * factor, len(child), child))
    return frozenset(found)


def _next_nodes(
    node: Chosen, expected: Sequence[float], depth: int
) -> Iterator[tuple[Chosen, float]]:
    """Yield the likeliest child and the next sibling, with their weight over the node's."""
    if len(node) < depth:
        yield (*node, 0), expected[0]
    rank = node[-1]
    if rank + 1 < len(expected):
        yield (*node[:-1], rank + 1), expected[rank + 1] / expected[rank]


@dataclass(frozen=True)
class AgreementRecord:
    """The base draft's first choices along outputs that are known, right or wrong.

    ``right``: for each output and each place in it but the first, whether its first choice was
    the token; ``uniforms``: the numbers drawn there, several rows for each output.
    """

    right: tuple[tuple[bool, ...], ...]
    uniforms: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def agreement(self) -> float:
        """The share of places at which the base draft's first choice was right."""
        places = [right for output in self.right for right in output]
        return sum(places) / len(places)

    def acceptance_length(self, dial: Dial, tree: TreeSettings = REFERENCE) -> float:
        """Return the acceptance length that the dialled draft has in a tree on these outputs."""
        nodes = fixed_tree(dial.expected, tree)
        steps = tokens = 0
        for right, rows in zip(self.right, self.uniforms, strict=True):
            for row in rows:
                ranks = [
                    dial.rank_of(number) if sure else RANKS
                    for number, sure in zip(row, right, strict=True)
                ]
                steps += sum(1 for _ in _steps(ranks, nodes))
                tokens += len(ranks)
        return tokens / steps

    def dial(self, setting: float) -> Dial:
        """Return the dial that gives an acceptance length of ``setting`` in the reference tree.

        Raises UsageError where the base draft itself does not reach it.
        """
        agreement = self.agreement
        most = self.acceptance_length(Dial(1.0, agreement)) if agreement else 1.0
        if most < setting:
            raise UsageError(
                f"the draft agrees with the target at {agreement:.0%} of the places, which gives "
                f"an acceptance length of {most:.2f} at most, not {setting:g}"
            )
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.acceptance_length(Dial(middle, agreement)) < setting:
                low = middle
            else:
                high = middle
        return Dial(high, agreement)


def _steps(ranks: Sequence[int], nodes: frozenset[Chosen]) -> Iterator[int]:
    """Yield the tokens that each step emits, ``ranks`` being where the right ones stand."""
    start = 0
    while start < len(ranks):
        node: Chosen = ()
        while start + len(node) < len(ranks):
            longer = (*node, ranks[start + len(node)])
            if longer not in nodes:
                break
            node = longer
        yield len(node) + 1  # with the bonus token
        start += len(node) + 1
