"""Methods of our own engine: a drafter, and the way the models attend."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from specx.bench.cases import Case
from specx.bench.methods.layer import with_measured_layer
from specx.bench.runs import Run, Setting, run_drafter
from specx.engine.drafter import Drafter
from specx.engine.methods import Pair, make_drafter
from specx.errors import UsageError
from specx.models.call import Phase
from specx.profile import Profile
from specx.records import WITHOUT_DRAFT, Method


@dataclass(frozen=True)
class Engine:
    """A method of our own engine.

    ``change``: what it does to the profile; raises UsageError for a profile it cannot change.
    ``build``: makes the drafter of one document, as ``make_drafter`` does. ``masked``: phases in
    which the models attend under one mask instead (``attention/masked.py``): of a tree the target
    alone, which verifies; of prefill both models.
    """

    name: str
    about: str
    method: Method
    change: Callable[[Profile], Profile] = lambda profile: profile
    build: Callable[[Method, Profile, Pair, int], Drafter] = make_drafter
    masked: frozenset[Phase] = frozenset()

    def check(self, profile: Profile) -> None:
        if self.method not in WITHOUT_DRAFT and profile.draft is None:
            raise UsageError(f"profile {profile.name} has no draft, so it cannot run {self.name}")
        if "tree" in self.masked and profile.compile:
            raise UsageError(
                f"{self.name} attends under one mask, which is not compiled; set compile: false in "
                f"profile {profile.name}"
            )
        self.change(profile)

    def run(self, setting: Setting, case: Case) -> Run:
        setting = self._attending(setting)
        return run_drafter(self.name, self.drafter(setting), setting, case)

    def drafter(self, setting: Setting) -> Callable[[int], Drafter]:
        """What makes its drafter, given the most tokens that prompt and output can have."""
        profile = with_measured_layer(self.change(setting.profile), setting.pair)
        return partial(self.build, self.method, profile, setting.pair)

    def _attending(self, setting: Setting) -> Setting:
        """The setting with models that attend as this method wants it."""
        pair = setting.pair
        target = replace(pair.target, masked=self.masked)
        draft = pair.draft and replace(pair.draft, masked=self.masked - {"tree"})
        read = None if "prefill" in self.masked else setting.read  # it is to be seen what it costs
        return replace(setting, pair=replace(pair, target=target, draft=draft), read=read)
