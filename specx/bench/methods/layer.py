"""``layer: auto`` in a benchmark: measured as for a summary, before anything is timed."""

from specx.bench.cases import prompt_kind
from specx.engine.decode import context_window
from specx.engine.methods import Pair
from specx.jobs.calibration import resolve_layer
from specx.profile import Profile


class _Nobody:
    def phase(self, name: str) -> None:
        pass


def with_measured_layer(profile: Profile, pair: Pair) -> Profile:
    """The profile with a retrieval layer that is a number or ``last``."""
    kind = prompt_kind(profile, pair.target.tokenizer, "digest")
    return resolve_layer(profile, pair, kind, _Nobody(), context_window(pair, profile))
