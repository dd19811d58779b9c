"""Methods that are fitted on generated documents before they are timed."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch

from specx.bench.baselines.longspec import LongSpec, load_glide
from specx.bench.baselines.medusa import (
    EMBEDDED_MEDUSA,
    MedusaDrafter,
    MedusaHeads,
    head_chances,
    load_medusa,
    scaled_heads,
)
from specx.bench.baselines.skipped_layers import SkippedLayers, SkippingDraft, choose_layers
from specx.bench.baselines.static_tree import Chances, Choices, StaticDrafter, best_shape
from specx.bench.cases import Case, generated_documents, make_cases, prompt_kind
from specx.bench.forcing import force
from specx.bench.methods.engine import Engine
from specx.bench.runs import Run, Setting, draft_model, run_drafter
from specx.decoding.drafter import Drafter
from specx.decoding.methods import make_drafter
from specx.errors import UsageError
from specx.models.load import LoadedModel
from specx.profile import Profile, Settings

T = TypeVar("T")
Fit = tuple[Callable[[int], Drafter], dict[str, Any]]  # a maker of drafters, and facts of a run

SEED = 7000  # of documents to fit on, which are none of those that are measured
DOCUMENTS = 2
TOKENS = 160  # of the output of each
EMBEDDED_SIZE = 256  # elements of the embedded target's hidden state
DRAFTED = 8  # tokens, at most, that a target drafts for itself
RANKS = 12  # of a node's choices; later ones are hardly ever right


@dataclass(frozen=True, kw_only=True)
class TargetText:
    """A generated document and what the target writes about it, to measure a method's parts on."""

    case: Case
    output: tuple[int, ...]


def written_by_target(setting: Setting, case: Case, documents: int = DOCUMENTS) -> list[TargetText]:
    """Have the target write about generated documents, as long as that of ``case``."""
    profile = setting.profile.changed(generation={"max_new_tokens": TOKENS})
    setting = Setting(setting.pair, profile)  # which has read nothing
    kind = prompt_kind(profile, setting.pair.target.tokenizer, case.task)
    # Not every one comes close enough to the length with whole paragraphs.
    made = generated_documents(4 * documents, case.length, SEED)
    cases = make_cases(kind, case.task, made, case.length, documents)
    plain = Engine("plain", "", make_drafter, "plain")
    return [TargetText(case=each, output=plain.run(setting, each).output) for each in cases]


def rank_chances(method: Engine, setting: Setting, written: list[TargetText]) -> list[float]:
    """Return how often the draft's first choice is right, its second, and so on."""
    counts, places = torch.zeros(RANKS), 0
    for each in written:
        for expected in force(method, replace(setting, read=None), each.case.ids, each.output):
            rank = int((expected.draft > expected.draft[expected.token]).sum())
            places += 1
            if rank < RANKS and expected.draft[expected.token] > -torch.inf:
                counts[rank] += 1
    return (counts / max(1, places)).tolist()


@dataclass(frozen=True)
class Measured(Engine):
    """A method with something to be measured first, on generated documents.

    ``known``: what was measured, by the model, and by name, length and task.
    """

    known: WeakKeyDictionary[Any, dict[tuple[str, int, str], Any]] = field(
        default_factory=WeakKeyDictionary, kw_only=True, compare=False
    )

    def run(self, setting: Setting, case: Case) -> Run:
        setting = self._attending(setting)
        settings = self.settings(setting)
        changed = replace(setting, profile=self.change(setting.profile))
        make, facts = self.fit(changed, settings, case)
        return replace(run_drafter(self.name, make, setting, settings, case), facts=facts)

    @abstractmethod
    def fit(self, setting: Setting, settings: Settings, case: Case) -> Fit:
        """Return the maker of its drafter, and what was measured, as facts of the run.

        ``setting``: with the changed profile, which ``settings`` are of.
        """

    def once(self, model: LoadedModel, case: Case, measure: Callable[[], T]) -> T:
        """Return what ``measure`` finds for a model and a kind of case."""
        known, key = self.known.setdefault(model.model, {}), (self.name, case.length, case.task)
        if key not in known:
            known[key] = measure()
        return cast(T, known[key])


@dataclass(frozen=True)
class Fitted(Measured):
    """A method that drafts trees of a fixed shape, made of chances and a number of nodes."""

    shape: Callable[[Chances, int], Choices] = field(kw_only=True)

    def fit(self, setting: Setting, settings: Settings, case: Case) -> Fit:
        pair, tree = setting.pair, settings.tree
        draft, _ = draft_model(pair, self.name)
        chances = self.once(draft, case, partial(self._chances, setting, case))
        choices = self.shape([chances] * tree.depth, tree.nodes)
        make = partial(StaticDrafter, settings, pair, choices)
        return make, {"chances": chances, "shape": [list(path) for path in choices]}

    def _chances(self, setting: Setting, case: Case) -> list[float]:
        drafting = Engine(self.name, "", make_drafter, cache=self.cache)
        return rank_chances(drafting, setting, written_by_target(setting, case))


@dataclass(frozen=True)
class MedusaMethod(Measured):
    """Medusa heads: the option ``heads`` is a folder, a hub id, or the embedded ones.

    ``fixed``: in a tree of one shape, fitted to how often each head's choices are right.
    """

    fixed: bool = field(kw_only=True)

    def fit(self, setting: Setting, settings: Settings, case: Case) -> Fit:
        pair, tree = setting.pair, settings.tree
        heads, chances = self.once(pair.target, case, partial(self._measure, setting, case))
        choices = best_shape(chances, tree.nodes) if self.fixed else None
        make = partial(MedusaDrafter, settings, pair, heads, choices)
        return make, {"chances": chances, "shape": [list(path) for path in choices or ()]}

    def _measure(self, setting: Setting, case: Case) -> tuple[MedusaHeads, Chances]:
        pair, source = setting.pair, str(self.options["heads"])
        if pair.target.source.startswith("scaled") and source == EMBEDDED_MEDUSA:
            heads = scaled_heads(pair.target, EMBEDDED_SIZE)
        else:
            heads = load_medusa(source, pair.target)
        written = written_by_target(setting, case) if self.fixed else []
        texts = [(each.case.ids, each.output) for each in written]
        return heads, head_chances(heads, pair, texts, RANKS)


@dataclass(frozen=True)
class LongSpecMethod(Measured):
    """A LongSpec draft: the option ``draft`` is a folder or a hub id."""

    def check(self, profile: Profile) -> None:
        super().check(profile)
        if self.options["draft"] is None:
            raise UsageError("longspec needs a draft of its own; write longspec:draft=FOLDER")

    def fit(self, setting: Setting, settings: Settings, case: Case) -> Fit:
        pair, source = setting.pair, str(self.options["draft"])
        glide = self.once(pair.target, case, partial(load_glide, source, pair.target))
        return partial(LongSpec, settings, pair, glide), {}


@dataclass(frozen=True)
class SelfDrafting(Measured):
    """A method whose draft is the target without some of its layers."""

    def fit(self, setting: Setting, settings: Settings, case: Case) -> Fit:
        draft = self.once(setting.pair.target, case, partial(self._choose, setting, case))
        make = partial(SkippedLayers, settings, setting.pair, draft)
        return make, {"kept_layers": list(draft.layers), "drafted": draft.depth}

    def _choose(self, setting: Setting, case: Case) -> SkippingDraft:
        (written,) = written_by_target(setting, case, documents=1)
        depth = min(DRAFTED, setting.profile.tree.depth)
        return choose_layers(setting.pair, written.case.ids, written.output, depth)
