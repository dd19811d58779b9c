"""Models that a profile names by a path. A relative one counts from the profile's own folder."""

import re
from collections.abc import Iterator
from os.path import exists, isdir, isfile  # unlike the methods of Path, they cannot fail
from pathlib import Path

from specx.profile.profile import Profile
from specx.profile.schema import EMBEDDED

_WORD = r"[A-Za-z0-9][\w.-]*"
HUB_ID = re.compile(rf"(?!.*\.gguf$){_WORD}(/{_WORD})?")
QUANTIZED_ID = re.compile(rf"({_WORD}/{_WORD}):({_WORD})")  # org/name:Q4_K_M
OLLAMA, LM_STUDIO = "ollama:", "lmstudio:"  # in front of what these programs call a model
PACKAGE = "package:"  # in front of the Python package that ships it
GGUF = ".gguf"
MODELS = ("target", "draft")  # the sections that name one


def with_absolute_folders(profile: Profile, home: Path) -> Profile:
    """Return the profile with the absolute paths of its models; ``home`` is its own folder."""
    for section in MODELS:
        settings = getattr(profile, section)
        folder = settings and model_folder(settings.model, home)
        if folder:
            profile = profile.changed(**{section: settings.changed(model=str(folder))})
    return profile


def model_folder(model: str, home: Path) -> Path | None:
    """Return the folder, or GGUF file, that a profile in ``home`` means by ``model``.

    None for other models. ``org/name`` is a folder if there is one beside the profile, and a model
    of the hub otherwise.
    """
    if model.startswith((EMBEDDED, OLLAMA, LM_STUDIO, PACKAGE)) or QUANTIZED_ID.fullmatch(model):
        return None
    folder = home.absolute() / Path(model).expanduser()
    return None if HUB_ID.fullmatch(model) and not isdir(folder) else folder


def missing_folders(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield section and sentence for each model of a loaded profile whose folder holds none."""
    for section in MODELS:
        settings = getattr(profile, section)
        if settings is None or not Path(settings.model).is_absolute():
            continue
        folder, name = Path(settings.model), f"`{section}.model`"
        if not exists(folder):
            yield section, f"{name} names the folder {folder}, which does not exist"
        elif not isdir(folder):
            if folder.suffix.lower() != GGUF:
                advice = "name the folder that holds config.json, or a GGUF file"
                yield section, f"{name} is the file {folder}; {advice}"
        elif not isfile(folder / "config.json") and not any(folder.glob(f"*{GGUF}")):
            yield section, f"{name} names the folder {folder}, which holds no config.json"
