"""A method with trees of a fixed shape, fitted on generated documents before it is timed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from specx.bench.baselines.static_tree import Chances, Choices, StaticDrafter
from specx.bench.cases import Case, generated_documents, make_cases, prompt_kind
from specx.bench.forcing import force
from specx.bench.methods.engine import Engine
from specx.bench.runs import Run, Setting, refuse_head, run_drafter
from specx.engine.methods import make_drafter

SEED = 7000  # of documents to fit on, which are none of those that are measured
DOCUMENTS = 2
TOKENS = 160  # of the output of each
RANKS = 12  # of a node's choices; later ones are hardly ever right


@dataclass(frozen=True, kw_only=True)
class Written:
    """A generated document and what the target writes about it, to measure a method's parts on."""

    case: Case
    output: tuple[int, ...]


def written_by_target(setting: Setting, case: Case, documents: int = DOCUMENTS) -> list[Written]:
    """Have the target write about generated documents, as long as that of ``case``."""
    profile = setting.profile.changed(generation={"max_new_tokens": TOKENS})
    setting = Setting(setting.pair, profile)
    kind = prompt_kind(profile, setting.pair.target.tokenizer, case.task)
    # Not every one comes close enough to the length with whole paragraphs.
    made = generated_documents(4 * documents, case.length, SEED)
    cases = make_cases(kind, case.task, made, case.length, documents)
    plain = Engine("plain", "", partial(make_drafter, "plain"))
    return [Written(case=each, output=plain.run(setting, each).output) for each in cases]


def rank_chances(method: Engine, setting: Setting, written: list[Written]) -> list[float]:
    """Return how often the draft's first choice is right, its second, and so on."""
    counts, places = torch.zeros(RANKS), 0
    for each in written:
        for expected in force(method, setting, each.case.ids, each.output):
            rank = int((expected.draft > expected.draft[expected.token]).sum())
            places += 1
            if rank < RANKS and expected.draft[expected.token] > -torch.inf:
                counts[rank] += 1
    return (counts / max(1, places)).tolist()


@dataclass(frozen=True)
class Fitted(Engine):
    """A method that drafts trees of a fixed shape.

    ``shape``: makes one of chances and a number of nodes. ``fits``: what was measured, by the draft
    and the length of the prompt.
    """

    shape: Callable[[Chances, int], Choices] = field(kw_only=True)
    fits: WeakKeyDictionary[Any, dict[int, list[float]]] = field(
        default_factory=WeakKeyDictionary, kw_only=True, compare=False
    )

    def run(self, setting: Setting, case: Case) -> Run:
        refuse_head(setting.pair, self.name)
        setting = self._attending(setting)
        profile = self.change(setting.profile)
        chances = self.chances(setting, case)
        choices = self.shape([chances] * profile.tree.depth, profile.tree.nodes)
        make = partial(StaticDrafter, profile, setting.pair, choices)
        run = run_drafter(self.name, make, setting, case)
        return replace(run, facts={"chances": chances, "shape": [list(path) for path in choices]})

    def chances(self, setting: Setting, case: Case) -> list[float]:
        """Measure how often choices are right by their rank, once for a draft and a length."""
        assert setting.pair.draft is not None, "Engine.check refuses profiles without a draft"
        known = self.fits.setdefault(setting.pair.draft.model, {})
        if case.length not in known:
            drafting = Engine(self.name, "", partial(make_drafter, "specextend"), cache=self.cache)
            alone = Setting(setting.pair, setting.profile)
            written = written_by_target(alone, case)
            known[case.length] = rank_chances(drafting, alone, written)
        return known[case.length]
