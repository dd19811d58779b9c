"""Loading the models of a profile, once for all documents."""

import torch

from specx.decoding.methods import Pair
from specx.errors import UsageError
from specx.models.compat import allowed_alone, check_pair
from specx.models.load import LoadedModel, ModelSpec, load_model
from specx.profile import Profile
from specx.records import Method


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one. Raises UsageError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here; use --device cpu or auto")
    return torch.device(name)


def load_pair(profile: Profile, method: Method, device: torch.device) -> Pair:
    """The target, and the draft if the method drafts.

    Raises ModelError when one cannot be loaded or they do not fit each other, UsageError when the
    method drafts and the profile has no draft.
    """
    if method != "plain" and profile.draft is None:
        raise UsageError(f"profile {profile.name} has no draft, so only --method plain can run")
    target = _load(profile, device)
    if method == "plain" or profile.draft is None:
        return Pair(target, allowed_alone(target))
    dtype = profile.draft.dtype or profile.target.dtype
    draft = load_model(
        ModelSpec(profile.draft.model, profile.draft.revision, dtype), device, "draft"
    )
    facts = check_pair(target, draft)
    return Pair(target, facts.target_allowed, draft, facts.draft_allowed)


def _load(profile: Profile, device: torch.device) -> LoadedModel:
    settings = profile.target
    spec = ModelSpec(settings.model, settings.revision, settings.dtype)
    return load_model(spec, device, "target", positions=settings.window)
