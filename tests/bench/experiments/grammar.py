"""Names of changed methods, as far as the experiments' tests need them."""

from functools import partial

from specx.bench.methods import METHODS, BenchMethod, Engine
from specx.errors import UsageError
from specx.profile import Profile


def find_methods(names: str, profile: Profile) -> list[BenchMethod]:
    """One name such as ``tree-hta:chunk=8``: components do nothing, settings are settings."""
    if names in METHODS:
        METHODS[names].check(profile)
        return [METHODS[names]]
    name, _, settings = names.partition(":")
    base = METHODS.get(name.partition("-")[0])
    if not isinstance(base, Engine) or name.startswith("hf"):
        raise UsageError(f"{names!r} is no method")
    values = dict(pair.split("=") for pair in settings.split(",")) if settings else {}
    return [Engine(names, "", base.method, partial(with_settings, values))]


def with_settings(values: dict[str, str], profile: Profile) -> Profile:
    sections = {}
    for name in ("draft_cache", "tree"):
        section = getattr(profile, name)
        own = {k: type(getattr(section, k))(v) for k, v in values.items() if hasattr(section, k)}
        sections[name] = section.model_copy(update=own)
    return profile.model_copy(update=sections)
