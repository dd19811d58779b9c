"""The methods of the command line: the drafter that each of them means."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from specx.decoding.drafter import Drafter, NoDrafter
from specx.decoding.head_drafter import HeadDrafter, within_window
from specx.decoding.lookup import REACH
from specx.decoding.lookup_drafter import BEHIND, JoinedDrafter, LookupDrafter
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.policies import CrossModelRetrieval, Streaming
from specx.decoding.times import KnownTimes
from specx.decoding.tuner import EVERY
from specx.errors import UsageError
from specx.models.head_files import LoadedHead
from specx.models.load import LoadedModel, turns_alike
from specx.ops.chunks import Grid
from specx.profile import (
    AutoTree,
    DraftCacheSettings,
    Profile,
    Sampling,
    TreeSettings,
    resolve_sampling,
)
from specx.records import WITHOUT_DRAFT, Method


@dataclass(frozen=True)
class Pair:
    """The models of a run: a target, and a draft unless the profile has none.

    ``target_allowed``, ``draft_allowed``: bool [V] each, ids that may be produced. ``known``: the
    findings from the texts of the pair, for those that follow.
    """

    target: LoadedModel
    target_allowed: Tensor
    draft: LoadedModel | None = None
    draft_allowed: Tensor | None = None
    known: KnownTimes = field(default_factory=KnownTimes, compare=False)
    _others: list["Pair"] = field(default_factory=list, compare=False, repr=False)

    def for_text(self, tokens: int) -> "Pair":
        """Return the pair for a text of at most so many tokens (``LoadedModel.for_text``).

        The last one that was another than this is kept, as texts of a job are often alike.
        """
        target, draft = self.target.for_text(tokens), self.draft and self.draft.for_text(tokens)
        if target is self.target and draft is self.draft:
            return self
        for other in self._others:
            if _turn_alike(target, other.target) and _turn_alike(draft, other.draft):
                return other
        self._others[:] = [replace(self, target=target, draft=draft)]
        return self._others[0]

    @property
    def is_ours(self) -> bool:
        """True if specx computes all its models, none of them transformers."""
        return self.target.is_ours and (self.draft is None or self.draft.is_ours)


def _turn_alike(one: LoadedModel | None, other: LoadedModel | None) -> bool:
    specs = [None if each is None else each.decoder_spec for each in (one, other)]
    return None in specs or turns_alike(*specs)  # type: ignore[arg-type]


def sampling_of(pair: Pair, profile: Profile) -> Sampling:
    """Return the target's settings for choosing tokens, the same for every method."""
    return resolve_sampling(profile, pair.target.stated.settings)


def cache_settings(method: Method, profile: Profile) -> DraftCacheSettings:
    """Return the draft cache of a method.

    ``tree``: OPT-Tree as it was published, the draft sees and prefills everything.
    ``streaming``: the first and the most recent chunks. Others: as the profile says.
    """
    settings: dict[str, object] = {}
    if isinstance(profile.tree, AutoTree):
        settings["every"] = EVERY[-1]  # room for any
    if method == "tree":
        settings |= {"policy": "full", "window": None}
    if method == "streaming":
        settings["policy"] = "streaming"
    return profile.draft_cache.changed(**settings)


def draft_plan(method: Method, profile: Profile, target: LoadedModel) -> DraftPlan:
    """Plan the draft's work under a method. Raises UsageError for a layer the target lacks."""
    cache = cache_settings(method, profile)
    tree = profile.tree
    if cache.policy == "cross-model" and not target.full_layers:
        # The target itself sees no more than its window, at whose end the draft belongs then.
        return DraftPlan(tree=tree, cache=cache, policy=Streaming(cache))
    if cache.policy == "cross-model":
        policy = CrossModelRetrieval(cache, retrieval_layer(cache, target))
        return DraftPlan(tree=tree, cache=cache, policy=policy, grid=Grid.around)
    streaming = Streaming(cache) if cache.policy == "streaming" else None
    return DraftPlan(tree=tree, cache=cache, policy=streaming)


def retrieval_layer(cache: DraftCacheSettings, target: LoadedModel) -> int:
    """Return the layer whose attention chooses chunks, counted from 0.

    It sees the whole text: the one that is asked for or, if that has a window, the nearest.
    """
    if cache.layer == "last":
        return target.full_layers[-1]
    assert isinstance(cache.layer, int), "`auto` is resolved by calibration before decoding"
    if cache.layer >= target.num_layers:
        raise UsageError(
            f"draft_cache.layer is {cache.layer}, but {target.source} has layers "
            f"0 to {target.num_layers - 1}"
        )
    asked = cache.layer
    return min(target.full_layers, key=lambda layer: (abs(layer - asked), -layer))


def make_drafter(method: Method, profile: Profile, pair: Pair, max_tokens: int) -> Drafter:
    """Make the drafter of a method for a document of at most ``max_tokens`` (prompt and output).

    Raises UsageError when the method needs a draft and the profile has none, or a larger tree.
    """
    if method == "plain":
        return NoDrafter()
    if method == "lookup":
        return LookupDrafter(profile.tree, max_tokens, pair.target.device)
    if pair.draft is None or pair.draft_allowed is None:
        raise no_draft(profile)
    plan = draft_plan(method, profile, pair.target)
    kind: type[ModelDrafter] = ModelDrafter
    if isinstance(pair.draft, LoadedHead):
        kind, plan = HeadDrafter, within_window(plan, pair.draft.spec.window)
    if method != "specextend+lookup":
        return kind(pair.draft, pair.draft_allowed, plan, max_tokens)
    tree = _tree_with_a_branch(profile.tree)
    plan = replace(plan, tree=tree, reserved=1, others=REACH + 1, behind=BEHIND)
    return JoinedDrafter(kind(pair.draft, pair.draft_allowed, plan, max_tokens), max_tokens)


def no_draft(profile: Profile) -> UsageError:
    """Return the error for a method that drafts with a model, where there is none."""
    methods = " and ".join(sorted(WITHOUT_DRAFT, reverse=True))
    return UsageError(
        f"profile {profile.name} has no draft, so only --method {methods} can run; --draft names "
        "one"
    )


def _tree_with_a_branch(tree: TreeSettings) -> TreeSettings:
    """Return a tree with room for lookup's branch, the default one where it is to be chosen."""
    if isinstance(tree, AutoTree):
        return TreeSettings()
    if tree.nodes < 2:
        raise UsageError("tree.nodes is 1, but the method specextend+lookup needs at least 2")
    return tree


def with_layer(profile: Profile, layer: int) -> Profile:
    """Return the profile with its retrieval layer fixed."""
    return profile.changed(draft_cache={"layer": layer})
