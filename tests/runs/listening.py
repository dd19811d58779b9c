"""A listener for tests."""

from typing import Any


class Ear:
    """A listener that remembers what was shown."""

    def __init__(self) -> None:
        self.text = ""
        self.shown = ""  # what may still change
        self.parts: list[tuple[int, int]] = []

    def show(self, text: str) -> None:
        self.shown = text

    def write(self, text: str) -> None:
        self.text += text
        self.shown = ""

    def part(self, part: int, parts: int) -> None:
        self.parts.append((part, parts))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
