"""Methods that are fitted on generated documents before they are timed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch

from specx.bench.baselines.skipped_layers import SkippedLayers, SkippingDraft, choose_layers
from specx.bench.baselines.static_tree import Chances, Choices, StaticDrafter
from specx.bench.cases import Case, generated_documents, make_cases, prompt_kind
from specx.bench.forcing import force
from specx.bench.methods.engine import Engine
from specx.bench.runs import Measurement, Setting, draft_model, run_drafter
from specx.decoding.drafter import Drafter
from specx.decoding.methods import make_drafter
from specx.models.loaded import LoadedModel
from specx.profile import Settings

T = TypeVar("T")
Text = tuple[tuple[int, ...], tuple[int, ...]]  # a prompt, and what the target writes behind it
Fit = tuple[Callable[[int], Drafter], dict[str, Any]]  # a maker of drafters, and facts of a run

SEED = 7000  # of documents to fit on, which are none of those that are measured
DOCUMENTS = 2
TOKENS = 160  # of the output of each
DRAFTED = 8  # tokens, at most, that a target drafts for itself
RANKS = 12  # of a node's choices; later ones are hardly ever right


def written_by_target(setting: Setting, case: Case, documents: int = DOCUMENTS) -> list[Text]:
    """Let the target summarize generated documents of the length of ``case``."""
    profile = setting.profile.changed(generation={"max_new_tokens": TOKENS})
    setting = Setting(setting.pair, profile)  # which has read nothing
    kind = prompt_kind(profile, setting.pair.target.tokenizer)
    # Not every one comes close enough to the length with whole paragraphs.
    made = generated_documents(4 * documents, case.length, SEED)
    cases = make_cases(kind, made, case.length, documents)
    plain = Engine("plain", "", make_drafter, "plain")
    return [(each.ids, plain.run(setting, each).output) for each in cases]


def rank_chances(method: Engine, setting: Setting, written: list[Text]) -> list[float]:
    """Return, for each rank, the share of tokens that were the draft's choice of this rank."""
    counts, places = torch.zeros(RANKS), 0
    for prompt, output in written:
        predictions = force(method, replace(setting, read=None), prompt, output)
        for token, predicted in zip(output[1:], predictions, strict=True):
            rank = int((predicted > predicted[token]).sum())
            places += 1
            if rank < RANKS and predicted[token] > -torch.inf:
                counts[rank] += 1
    return (counts / max(1, places)).tolist()


@dataclass(frozen=True)
class Fitted(Engine):
    """A method that is first fitted on generated documents.

    ``fit``: a function of the method, a setting with the changed profile, the resolved settings,
    and the case. It returns a function that makes the drafter, and measurements to report as facts
    of the run. ``known``: earlier measurements, by model, then by name and length.
    """

    fit: "Callable[[Fitted, Setting, Settings, Case], Fit]" = field(kw_only=True)
    known: WeakKeyDictionary[Any, dict[tuple[str, int], Any]] = field(
        default_factory=WeakKeyDictionary, kw_only=True, compare=False
    )

    def run(self, setting: Setting, case: Case) -> Measurement:
        settings = self.settings(setting)
        changed = replace(setting, profile=self.change(setting.profile))
        make, facts = self.fit(self, changed, settings, case)
        return replace(run_drafter(self.name, make, setting, settings, case), facts=facts)

    def once(self, model: LoadedModel, case: Case, measure: Callable[[], T]) -> T:
        """Return the result of ``measure``, which is called once per model and length."""
        known, key = self.known.setdefault(model.model, {}), (self.name, case.length)
        if key not in known:
            known[key] = measure()
        return cast(T, known[key])


def fit_shape(
    method: Fitted,
    setting: Setting,
    settings: Settings,
    case: Case,
    *,
    shape: Callable[[Chances, int], Choices],
) -> Fit:
    """Draft trees of a fixed shape, which ``shape`` computes.

    ``shape``: a function of the probabilities of the draft's choices and the number of nodes.
    """

    def measure() -> list[float]:
        drafting = Engine(method.name, "", make_drafter, cache=method.cache)
        return rank_chances(drafting, setting, written_by_target(setting, case))

    pair, tree = setting.pair, settings.tree
    draft, _ = draft_model(pair, method.name)
    chances = method.once(draft, case, measure)
    choices = shape([chances] * tree.depth, tree.nodes)
    make = partial(StaticDrafter, settings, pair, choices)
    return make, {"chances": chances, "shape": [list(path) for path in choices]}


def fit_layers(method: Fitted, setting: Setting, settings: Settings, case: Case) -> Fit:
    """Draft with the target, skipping some of its layers."""

    def choose() -> SkippingDraft:
        ((prompt, output),) = written_by_target(setting, case, documents=1)
        depth = min(DRAFTED, setting.profile.tree.depth)
        return choose_layers(setting.pair, prompt, output, depth)

    draft = method.once(setting.pair.target, case, choose)
    make = partial(SkippedLayers, settings, setting.pair, draft)
    return make, {"kept_layers": list(draft.layers), "drafted": draft.depth}
