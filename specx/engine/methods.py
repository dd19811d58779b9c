"""What each method of the command line means for the drafter."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from specx.engine.choice import EVERY
from specx.engine.cost import Costs
from specx.engine.drafter import Drafter, NoDrafter
from specx.engine.joined_drafter import BEHIND, JoinedDrafter
from specx.engine.lookup_drafter import LookupDrafter
from specx.engine.memory import CrossModel, Streaming
from specx.engine.model_drafter import DraftPlan, ModelDrafter
from specx.errors import UsageError
from specx.kernels.chunks import Grid
from specx.models.fused_layers import is_fused
from specx.models.load import LoadedModel
from specx.profile import AutoTree, DraftCacheSettings, Profile, TreeSettings
from specx.records import WITHOUT_DRAFT, Method


@dataclass(frozen=True)
class Pair:
    """The models of a run: a target, and a draft unless the profile has none.

    ``target_allowed``, ``draft_allowed``: bool [V] each, ids that may be produced. ``costs``: what
    was measured of them for ``tree: auto``, by kind of drafter and length class (``known_costs``).
    """

    target: LoadedModel
    target_allowed: Tensor
    draft: LoadedModel | None = None
    draft_allowed: Tensor | None = None
    costs: dict[str, dict[int, Costs]] = field(default_factory=dict, compare=False)

    @property
    def fused_layers(self) -> bool:
        """Whether the layers of all its models are (``models.fused_layers``)."""
        models = [self.target, self.draft] if self.draft else [self.target]
        return all(is_fused(each.model) for each in models)


def cache_settings(method: Method, profile: Profile) -> DraftCacheSettings:
    """The draft cache of a method.

    ``tree``: OPT-Tree as it was published, the draft sees and prefills everything.
    ``streaming``: the first and the most recent chunks. Others: as the profile says.
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
    if cache.policy == "cross-model":
        memory = CrossModel(cache, watched_layer(cache, target))
        return DraftPlan(profile.tree, cache, memory, grid=Grid.around)
    return DraftPlan(profile.tree, cache, Streaming(cache) if cache.policy == "streaming" else None)


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

    Raises UsageError when the method needs a draft and the profile has none, or a larger tree.
    """
    if method == "plain":
        return NoDrafter()
    if method == "lookup":
        return LookupDrafter(profile.tree, max_tokens, pair.target.device)
    if pair.draft is None or pair.draft_allowed is None:
        raise no_draft(profile)
    plan = draft_plan(method, profile, pair.target)
    if method == "specextend+lookup":
        plan = replace(plan, tree=_with_room_for_a_branch(profile.tree), behind=BEHIND)
        return JoinedDrafter(
            ModelDrafter(pair.draft, pair.draft_allowed, plan, max_tokens), max_tokens
        )
    return ModelDrafter(pair.draft, pair.draft_allowed, plan, max_tokens)


def no_draft(profile: Profile) -> UsageError:
    """What to tell a user who asks for a method that drafts with a model."""
    methods = " and ".join(sorted(WITHOUT_DRAFT, reverse=True))
    return UsageError(f"profile {profile.name} has no draft, so only --method {methods} can run")


def _with_room_for_a_branch(tree: TreeSettings) -> TreeSettings:
    """A tree whose levels have one node less. It keeps its shape: where the tree is to be chosen,
    it is the default one."""
    if isinstance(tree, AutoTree):
        tree = TreeSettings()
    if tree.nodes < 2:
        raise UsageError("tree.nodes is 1, but the method specextend+lookup needs at least 2")
    nodes = tree.nodes - 1
    return tree.model_copy(update={"nodes": nodes, "width": min(tree.continued, nodes)})


def with_layer(profile: Profile, layer: int) -> Profile:
    """The profile with its retrieval layer fixed."""
    cache = profile.draft_cache.model_copy(update={"layer": layer})
    return profile.model_copy(update={"draft_cache": cache})
