"""The dial, which sets how often a draft agrees with its target.

For each position of the output a rank is drawn. The first choice of the base draft moves to that
rank, or is dropped beyond the last. The tree sees the probabilities of the ranks.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate

from specx.bench.baselines.static_tree import best_shape
from specx.errors import UsageError
from specx.profile import TreeSettings

RANKS = 10  # children of a node that may be right
REFERENCE = TreeSettings(nodes=60, depth=8, threshold=0.0)  # its acceptance length names a setting
SETTINGS = (1.5, 2.0, 2.4, 3.0, 4.0, 6.0)
HALVINGS = 30  # of the interval in which a setting is looked for

Chosen = tuple[int, ...]  # the ranks, from 0, that lead from the root to a node


@dataclass(frozen=True)
class Dial:
    """A draft whose first choice is right with probability ``sure`` times ``agreement``.

    If all choices before it are wrong, choice r is right with ``sure`` / r, as public heads suggest
    (``docs/notes/2026-11-23-expectation.md``). ``agreement``: the share of tokens for which the
    base draft's first choice is the target's; ``below``: this share at each further level of a
    tree, if the levels above are right. Its last number holds for all deeper levels.
    """

    sure: float
    agreement: float
    seed: int = 0
    below: tuple[float, ...] = ()

    @cached_property
    def ranks(self) -> tuple[float, ...]:
        """Return the probability of each rank; the remainder is the probability of a miss."""
        found, left = [], 1.0
        for rank in range(1, RANKS + 1):
            found.append(left * self.sure / rank)
            left -= found[-1]
        return tuple(found)

    @cached_property
    def levels(self) -> tuple[tuple[float, ...], ...]:
        """Return the probability of each rank at each level: [levels, RANKS]."""
        shares = (self.agreement, *self.below)
        return tuple(tuple(share * rank for rank in self.ranks) for share in shares)

    def rank_of(self, uniform: float) -> int:
        """Return the rank, from 0, for a random number in [0, 1); RANKS if no choice is right."""
        return bisect_right(self._sums, uniform)

    @cached_property
    def _sums(self) -> list[float]:
        return list(accumulate(self.ranks))


def uniforms(seed: int, document: str, positions: Sequence[int]) -> list[float]:
    """Return a number in [0, 1) for each position, a hash of seed, document and position."""
    texts = (f"{seed} {document} {position}".encode() for position in positions)
    digests = (blake2b(text, digest_size=7).digest() for text in texts)
    return [(int.from_bytes(each, "big") >> 3) / 2**53 for each in digests]  # exact in a float


def fixed_tree(levels: Sequence[Sequence[float]], tree: TreeSettings) -> frozenset[Chosen]:
    """Return the most likely nodes of a tree, given the probabilities of children at each level.

    The last level's probabilities hold for all deeper levels.
    """
    chances = [levels[min(depth, len(levels) - 1)] for depth in range(tree.depth)]
    return frozenset(best_shape(chances, tree.nodes))


@dataclass(frozen=True)
class AgreementRecord:
    """The base draft's first choices along known outputs.

    ``right``: for each output, one value per token after the first: True if it was the first
    choice. ``uniforms``: random numbers for these tokens, several rows per output. ``chains``: for
    heads, which read their own output, the values of ``right`` along a chain drafted from each
    token.
    """

    right: tuple[tuple[bool, ...], ...]
    uniforms: tuple[tuple[tuple[float, ...], ...], ...]
    chains: tuple[tuple[tuple[bool, ...], ...], ...] = ()

    @property
    def agreement(self) -> float:
        """Return the share of tokens that were the draft's first choice."""
        places = [right for output in self.right for right in output]
        return sum(places) / len(places) if places else 0.0

    @cached_property
    def below(self) -> tuple[float, ...]:
        """Return the acceptance rate at each level after the first, from the chains."""
        chains = [chain for output in self.chains for chain in output]
        found: list[float] = []
        for depth in range(1, max(map(len, chains), default=0)):
            right = [chain[depth] for chain in chains if len(chain) > depth and all(chain[:depth])]
            before = found[-1] if found else self.agreement
            found.append(sum(right) / len(right) if right else before)
        return tuple(found)

    def acceptance_length(self, dial: Dial, tree: TreeSettings = REFERENCE) -> float:
        """Return the acceptance length of the dialled draft in a tree on these outputs."""
        nodes = fixed_tree(dial.levels, tree)
        steps = tokens = 0
        for chains, rows in zip(self._all_chains, self.uniforms, strict=True):
            for row in rows:
                steps += sum(1 for _ in _steps(list(map(dial.rank_of, row)), chains, nodes))
                tokens += len(row)
        return tokens / steps

    @cached_property
    def _all_chains(self) -> tuple[tuple[tuple[bool, ...], ...], ...]:
        return self.chains or tuple(
            tuple(right[start:] for start in range(len(right))) for right in self.right
        )

    def dial(self, setting: float) -> Dial:
        """Return the dial that gives an acceptance length of ``setting`` in the reference tree.

        Raises UsageError if the base draft does not reach it.
        """
        agreement, below = self.agreement, self.below
        most = self.acceptance_length(Dial(1.0, agreement, below=below)) if agreement else 1.0
        if most < setting:
            raise UsageError(
                f"an acceptance length of {setting:g} cannot be reached: the draft agrees with the "
                f"target on {agreement:.0%} of the tokens, which allows {most:.2f} at most"
            )
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.acceptance_length(Dial(middle, agreement, below=below)) < setting:
                low = middle
            else:
                high = middle
        return Dial(high, agreement, below=below)


def _steps(
    ranks: Sequence[int], chains: Sequence[Sequence[bool]], nodes: frozenset[Chosen]
) -> Iterator[int]:
    """Yield the number of tokens that each step emits."""
    start = 0
    while start < len(ranks):
        node: Chosen = ()
        for right, rank in zip(chains[start], ranks[start:], strict=False):
            longer = (*node, rank if right else RANKS)
            if longer not in nodes:
                break
            node = longer
        yield len(node) + 1  # with the bonus token
        start += len(node) + 1
