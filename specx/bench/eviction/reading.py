"""Memories that know the text, and the drafter that tells them."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from specx.engine.accept import Path
from specx.engine.drafter import Drafter, Outcome
from specx.engine.memory import Memory
from specx.engine.target import Target
from specx.kernels.trees import TokenTree
from specx.records import PrefillProgress


class Reader(Memory, Protocol):
    """A memory that wants to know the text itself."""

    def begin(self, prompt: Tensor) -> None:
        """The text begins with the prompt, int64 [L]."""

    def append(self, path: Path) -> None:
        """The first ``path.count`` of ``path.tokens`` are now the end of the text."""


class ReadingDrafter(Drafter):
    """A drafter whose memory is told the text."""

    def __init__(self, drafter: Drafter, memory: Reader) -> None:
        self.drafter, self.memory = drafter, memory
        self.watch, self.levels = drafter.watch, drafter.levels

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        self.memory.begin(prompt)
        return self.drafter.prefill(prompt, target)

    def grow(self, root: Tensor) -> TokenTree:
        return self.drafter.grow(root)

    def commit(self, path: Path) -> None:
        self.drafter.commit(path)
        self.memory.append(path)

    def retrieval_due(self, steps: int) -> bool:
        return self.drafter.retrieval_due(steps)

    def retrieve(self, target: Target) -> None:
        self.drafter.retrieve(target)

    def learn(self, outcome: Outcome) -> None:
        self.drafter.learn(outcome)
