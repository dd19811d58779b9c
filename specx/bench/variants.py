"""Methods with changed settings, by their names."""

from collections.abc import Sequence

from specx.bench.methods import BenchMethod, find_methods
from specx.errors import UsageError
from specx.profile import Profile


def changed(method: str, **settings: float) -> str:
    """The name of a method with settings of its own: ``specextend:chunk=64,every=8``."""
    return f"{method}:{','.join(f'{key}={value}' for key, value in settings.items())}"


def find_each(names: Sequence[str], profile: Profile) -> list[BenchMethod]:
    """The methods of these names. Raises UsageError as ``find_methods``."""
    return [method for name in names for method in find_methods(name, profile)]


def find_runnable(names: Sequence[str], profile: Profile) -> list[BenchMethod]:
    """Those of the methods that the profile can run."""
    found = []
    for name in names:
        try:
            found += find_methods(name, profile)
        except UsageError:
            continue
    return found
