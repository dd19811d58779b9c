"""Finding profiles: shipped ones, the user's own, and any other file."""

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from specx.errors import ProfileError
from specx.profile.wording import did_you_mean

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class ProfileEntry:
    """A profile that has a name, the stem of its file. The file has not been read."""

    name: str
    path: Path
    source: Literal["shipped", "user"]


def user_folder() -> Path:
    """Return the folder of the user's own profiles. It need not exist."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    home = os.path.expanduser("~")  # noqa: PTH111 - unlike Path.home(), it cannot fail
    base = Path(config) if Path(config).is_absolute() else Path(home) / ".config"
    return base / "specx" / "profiles"


def shipped_folder() -> Path:
    """Return the folder of the shipped profiles, which in a checkout is beside the package."""
    package = Path(str(resources.files("specx")))
    packaged = package / "_profiles"
    return packaged if packaged.is_dir() else package.parent / "profiles"


def list_profiles() -> list[ProfileEntry]:
    """Return all named profiles, sorted. A user's profile hides a shipped one of its name."""
    entries = {}
    folders: tuple[tuple[Literal["shipped", "user"], Path], ...] = (
        ("shipped", shipped_folder()),
        ("user", user_folder()),
    )
    for source, folder in folders:
        for path in sorted(folder.glob("*")):
            if path.suffix in SUFFIXES:
                entries[path.stem] = ProfileEntry(path.stem, path, source)
    return [entries[name] for name in sorted(entries)]


def profile_path(name_or_path: str) -> Path:
    """Return the file of a profile, which is given by its name or by the path itself.

    Raises ProfileError for an unknown name, with the names that exist.
    """
    if name_or_path.endswith(SUFFIXES) or "/" in name_or_path or os.sep in name_or_path:
        return Path(name_or_path).expanduser()
    paths = {entry.name: entry.path for entry in list_profiles()}
    if name_or_path not in paths and Path(name_or_path).is_dir():  # which reading it explains
        return Path(name_or_path)
    if name_or_path not in paths:
        raise ProfileError(
            f"there is no profile {name_or_path!r}, only {', '.join(paths)} or the path of a YAML "
            f"file (--model names a model){did_you_mean(name_or_path, paths)}"
        )
    return paths[name_or_path]
