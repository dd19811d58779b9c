"""Settings in a method's name, ``chunk=64``, put into a profile."""

from typing import Any

import yaml
from pydantic import ValidationError

from specx.errors import UsageError
from specx.profile import AutoTree, DraftCacheSettings, Profile, TreeSettings
from specx.profile.messages import problem_of
from specx.profile.wording import did_you_mean

Changes = dict[str, Any]

TREE = tuple(TreeSettings.model_fields)
CACHE = tuple(key for key in DraftCacheSettings.model_fields if key != "policy")


def parse_setting(text: str, keys: tuple[str, ...], name: str) -> tuple[str, Any]:
    """``chunk=64`` -> ("chunk", 64), with values as in a profile.

    Raises UsageError, about the method ``name``, for what is none or a key not among ``keys``.
    """
    key, equals, value = text.partition("=")
    if not equals or not value:
        raise UsageError(f"{text!r} in {name} is no setting; write key=value")
    if key not in keys:
        hint = did_you_mean(key, keys) or f"; there are {', '.join(keys)}"
        raise UsageError(f"{name} has no setting {key!r}{hint}")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"{value!r} in {name} is no value") from error


def changed(profile: Profile, tree: Changes, cache: Changes, name: str) -> Profile:
    """The profile with other keys of ``tree`` and ``draft_cache``.

    Raises UsageError, about the method ``name``, with the first problem in one sentence.
    """
    content = profile.model_dump()
    if isinstance(profile.tree, AutoTree) and tree:
        raise UsageError(f"{name}: the profile {profile.name} has tree: auto, which has no keys")
    if tree:
        content["tree"] |= tree
    content["draft_cache"] |= cache
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        problem = problem_of(error.errors()[0], {(): 0}, Profile)
        raise UsageError(f"{name}: {problem.sentence}") from error
