"""The methods that can be compared, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from specx.bench.cases import Case
from specx.bench.runs import Run, Setting, run_drafter
from specx.decoding.methods import make_drafter
from specx.errors import UsageError
from specx.profile import Profile
from specx.records import WITHOUT_DRAFT, Method


class BenchMethod(Protocol):
    """One way to write the target's output."""

    @property
    def name(self) -> str:
        """As it is written after ``--methods``."""

    @property
    def about(self) -> str:
        """One line for tables and for ``--help``."""

    def check(self, profile: Profile) -> None:
        """Raise UsageError when the profile cannot run this method."""

    def run(self, setting: Setting, case: Case) -> Run:
        """Write the output of ``case``."""


@dataclass(frozen=True)
class Engine:
    """A method of our own engine. ``change``: what it does to the profile."""

    name: str
    about: str
    method: Method
    change: Callable[[Profile], Profile] = lambda profile: profile

    def check(self, profile: Profile) -> None:
        if self.method not in WITHOUT_DRAFT and profile.draft is None:
            raise UsageError(f"profile {profile.name} has no draft, so it cannot run {self.name}")

    def run(self, setting: Setting, case: Case) -> Run:
        profile = self.change(setting.profile)
        make = partial(make_drafter, self.method, profile, setting.pair)
        return run_drafter(self.name, make, setting, case)


METHODS: dict[str, BenchMethod] = {
    method.name: method
    for method in (
        Engine("plain", "our engine, one token a pass: the baseline", "plain"),
        Engine("tree", "OPT-Tree: the draft sees everything", "tree"),
        Engine("streaming", "the draft sees the first and the latest tokens", "streaming"),
        Engine("specextend", "the draft sees what the target attends to", "specextend"),
        Engine("lookup", "what followed earlier in the text, no draft", "lookup"),
        Engine("specextend+lookup", "specextend and lookup in one tree", "specextend+lookup"),
    )
}


def find_methods(names: str, profile: Profile) -> list[BenchMethod]:
    """``plain,tree`` -> the methods. Raises UsageError for a name that is none, or a method that
    the profile cannot run."""
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in METHODS:
            raise UsageError(f"{name!r} is no method; there are {', '.join(METHODS)}")
        METHODS[name].check(profile)
        found.append(METHODS[name])
    return found
