"""What each method of the command line means for the drafter."""

from dataclasses import dataclass, field

from torch import Tensor

from specx.decoding.choice import EVERY
from specx.decoding.cost import Costs
from specx.decoding.drafter import Drafter, NoDrafter
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.errors import UsageError
from specx.models.load import LoadedModel
from specx.profile import AutoTree, DraftCacheSettings, Profile
from specx.records import Method


@dataclass(frozen=True)
class Pair:
    """The models of a run: a target, and a draft unless the profile has none.

    ``target_allowed``, ``draft_allowed``: bool [V] each, ids that may be produced. ``costs``: what
    was measured of them for ``tree: auto``, by method and length class (``known_costs``).
    """

    target: LoadedModel
    target_allowed: Tensor
    draft: LoadedModel | None = None
    draft_allowed: Tensor | None = None
    costs: dict[Method, dict[int, Costs]] = field(default_factory=dict, compare=False)


def cache_settings(method: Method, profile: Profile) -> DraftCacheSettings:
    """The draft cache of a method.

    ``tree``: OPT-Tree as it was published, the draft sees and prefills everything.
    ``streaming``: the first and the most recent chunks. ``specextend``: as the profile says.
    """
    settings = profile.draft_cache
    if isinstance(profile.tree, AutoTree):
        settings = settings.model_copy(update={"every": EVERY[-1]})  # room for any
    if method == "tree":
        return settings.model_copy(update={"policy": "full", "window": None})
    if method == "streaming":
        return settings.model_copy(update={"policy": "streaming"})
    return settings


def draft_plan(method: Method, profile: Profile, target: LoadedModel) -> DraftPlan:
    """How the draft works under a method. Raises UsageError for a layer the target lacks."""
    cache = cache_settings(method, profile)
    if cache.policy != "cross-model":
        return DraftPlan(profile.tree, cache, watch=None)
    return DraftPlan(profile.tree, cache, watch=watched_layer(cache, target))


def watched_layer(cache: DraftCacheSettings, target: LoadedModel) -> int:
    """The layer whose attention chooses chunks, counted from 0."""
    if cache.layer == "last":
        return target.num_layers - 1
    assert isinstance(cache.layer, int), "`auto` is resolved by calibration before decoding"
    if cache.layer >= target.num_layers:
        raise UsageError(
            f"draft_cache.layer is {cache.layer}, but {target.source} has layers "
            f"0 to {target.num_layers - 1}"
        )
    return cache.layer


def make_drafter(method: Method, profile: Profile, pair: Pair, max_tokens: int) -> Drafter:
    """The drafter of a method for one document of at most ``max_tokens`` (prompt and output).

    Raises UsageError when the method needs a draft and the profile has none.
    """
    if method == "plain":
        return NoDrafter()
    if pair.draft is None or pair.draft_allowed is None:
        raise UsageError(f"profile {profile.name} has no draft, so only --method plain can run")
    plan = draft_plan(method, profile, pair.target)
    return ModelDrafter(pair.draft, pair.draft_allowed, plan, max_tokens)


def with_layer(profile: Profile, layer: int) -> Profile:
    """The profile with its retrieval layer fixed."""
    cache = profile.draft_cache.model_copy(update={"layer": layer})
    return profile.model_copy(update={"draft_cache": cache})
