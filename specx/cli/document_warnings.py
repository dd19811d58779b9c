"""Warnings about documents on stderr, each as soon as it is known."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from specx.errors import printable
from specx.profile import Profile
from specx.runs.inputs import Input, InputDocument
from specx.runs.warnings import known_before


class DocumentWarnings:
    """Tells each warning of a document once: what its text shows, before a model reads it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: set[tuple[str, str]] = set()

    def before(self, inputs: Iterable[Input], profile: Profile) -> Iterator[Input]:
        """Yield the inputs, with the warnings that are known of each told before it."""
        model, asked = profile.target.model, profile.prompt
        for each in inputs:
            if isinstance(each, InputDocument):
                found = known_before(each.document, profile.name, model, asked)
                self.tell(each.name, [*each.document.warnings, *found])
            yield each

    def tell(self, name: str, warnings: Iterable[str]) -> None:
        """Print the warnings of the document ``name`` that were not told yet."""
        for warning in warnings:
            if (name, warning) not in self._told:
                self._told.add((name, warning))
                self._console.print(
                    f"specx: {printable(name)}: {printable(warning)}", soft_wrap=True
                )
