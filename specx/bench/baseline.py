"""Methods of other papers that draft on our engine, so that only the drafts differ."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from specx.bench.cases import Case
from specx.bench.runs import Run, Setting, run_drafter
from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.errors import UsageError
from specx.profile import Profile


@dataclass(frozen=True)
class Baseline:
    """A drafter that ``make`` makes for a document of at most so many tokens."""

    name: str
    about: str
    make: Callable[[Pair, Profile, int], Drafter]
    needs_draft: bool

    def check(self, profile: Profile) -> None:
        if self.needs_draft and profile.draft is None:
            raise UsageError(f"profile {profile.name} has no draft, so it cannot run {self.name}")

    def run(self, setting: Setting, case: Case) -> Run:
        make = partial(self.make, setting.pair, setting.profile)
        return run_drafter(self.name, make, setting, case)
