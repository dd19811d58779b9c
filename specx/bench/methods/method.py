"""What a method is to a benchmark."""

from typing import Protocol

from specx.bench.cases import Case
from specx.bench.runs import Run, Setting
from specx.profile import Profile


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
