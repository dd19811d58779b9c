"""A second, larger draft for the target of a pair."""

from dataclasses import dataclass, replace

from specx.bench.cases import Case
from specx.bench.methods import BenchMethod
from specx.bench.runs import Run, Setting
from specx.engine.methods import Pair
from specx.models.compat import check_pair
from specx.models.load import LoadedModel, ModelSpec, load_model
from specx.profile import Profile


def with_draft(pair: Pair, model: str) -> Pair:
    """The target of ``pair`` with the draft ``model`` (a folder or hub id), in the same dtype.

    Raises ModelError when it cannot be loaded or does not share the target's vocabulary.
    """
    target = pair.target
    dtype = str(target.dtype).removeprefix("torch.")
    draft = load_model(ModelSpec(model, dtype=dtype), target.device, "draft")
    facts = check_pair(target, draft)
    return Pair(target, facts.target_allowed, draft, facts.draft_allowed)


def parameters(model: LoadedModel) -> int:
    """Weights of a model, shared ones once."""
    return sum(weight.numel() for weight in model.model.parameters())


@dataclass(frozen=True)
class OnPair:
    """A method on a pair of its own: same target, another draft. Its runs have the fact
    ``draft_parameters``."""

    name: str
    method: BenchMethod
    pair: Pair

    @property
    def about(self) -> str:
        return self.method.about

    def check(self, profile: Profile) -> None:
        self.method.check(profile)

    def run(self, setting: Setting, case: Case) -> Run:
        run = self.method.run(replace(setting, pair=self.pair), case)
        size = 0 if self.pair.draft is None else parameters(self.pair.draft)
        return replace(run, method=self.name, facts={**run.facts, "draft_parameters": size})
