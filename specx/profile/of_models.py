"""The profile of models that the command line names: their names, and defaults that suit them."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from specx.errors import UsageError
from specx.profile.load import SUFFIXES, list_profiles, load_profile, missing_folders, model_folder
from specx.profile.profile import Profile
from specx.profile.schema import EMBEDDED, INSTRUCTION, WORDS, DraftSettings

DEFAULT = "mini"
# Layers are fused on a CPU in float32, and only that is token-identical; above this, twice the
# memory is too much for it.
MOST_IN_FLOAT32 = 4e9  # parameters
CHUNK, CHUNKS = 32, 64  # the working cache of the shipped profiles, in chunks
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
_HEADER = "# For `--model`{draft}, with the defaults of specx; every key is yours to change.\n"


def profile_for(profile: str | None, model: str | None, draft: str | None) -> Profile:
    """Return the profile that ``--profile``, ``--model`` and ``--draft`` ask for.

    A model takes the place of the profile's target, and then only ``draft`` is its draft; without
    a profile, defaults suit it. A draft without a model takes the place of the profile's draft.

    Raises ProfileError for an unknown or invalid profile, and UsageError for a name of a
    model that cannot be one.
    """
    if model is None and draft is None:
        return load_profile(profile or DEFAULT)
    drafting = None if draft is None else DraftSettings(model=_whole_name("--draft", draft))
    if model is None:
        chosen = load_profile(profile or DEFAULT).changed(draft=drafting)
    elif profile is None:
        chosen = Profile.model_validate(keys_for(model, draft))
    else:
        name = _whole_name("--model", model)
        target = {"model": name, "revision": None}
        chosen = load_profile(profile).changed(name=_short(name), target=target, draft=drafting)
    for section, sentence in missing_folders(chosen):
        option = "--model" if section == "target" else "--draft"
        if (model if section == "target" else draft) is not None:
            raise UsageError(sentence.replace(f"`{section}.model`", option))
    return chosen


def keys_for(model: str, draft: str | None) -> dict[str, Any]:
    """Return the keys of a profile for a model, and the values that differ from their defaults."""
    name = _whole_name("--model", model)
    with_draft = None if draft is None else _whole_name("--draft", draft)
    keys: dict[str, Any] = {
        "name": _short(name),
        "description": f"{name} with {with_draft} as draft" if with_draft else f"{name} alone",
        "prompt": {"kind": "instruct", "instruction": INSTRUCTION, "words": WORDS},
        "target": {"model": name, "dtype": "auto"},
        "draft": None,
    }
    if with_draft:
        keys["draft"] = {"model": with_draft}
        keys["tree"] = "auto"
        top_k = max(1, min(CHUNKS, (_window(with_draft) or CHUNK * CHUNKS) // CHUNK))
        keys["draft_cache"] = {
            "policy": "cross-model", "chunk": CHUNK, "top_k": top_k, "layer": "auto"
        }  # fmt: skip
    parameters = _parameters(name)
    if parameters is not None and parameters <= MOST_IN_FLOAT32:
        keys["devices"] = {"cpu": {"target": {"dtype": "float32"}}}
    return keys


def yaml_for(model: str, draft: str | None) -> str:
    """Return the YAML of the profile for a model. Raises UsageError as ``profile_for`` does."""
    profile_for(None, model, draft)
    header = _HEADER.format(draft=" and `--draft`" if draft else "")
    return header + yaml.safe_dump(keys_for(model, draft), sort_keys=False, allow_unicode=True)


def _whole_name(option: str, model: str) -> str:
    """Return a hub id as it is, and a folder with its absolute path."""
    if model.startswith(EMBEDDED) and option == "--model":
        raise UsageError(f"{option} {model} is the model of the profile mini; say -p mini")
    folder = model_folder(model, Path.cwd())
    if folder is not None:
        return str(folder.resolve())
    if model.endswith(SUFFIXES) or model in list_profiles():
        raise UsageError(
            f"{option} {model} is the name of a profile; say -p {model}, or give a model's hub id, "
            "such as org/name, or its folder"
        )
    return model


def _short(name: str) -> str:
    """Return the name that reports have for a model: the last part of its own."""
    last = Path(name).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-") or "model"


def _parameters(name: str) -> float | None:
    """Return about how many parameters a model has: by its files, or by its name; None: unknown."""
    folder = Path(name)
    if folder.is_dir():
        stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        dtype = _config(name).get("dtype") or _config(name).get("torch_dtype") or "float32"
        return stored / (4 if dtype == "float32" else 2) if stored else None
    sizes = [float(number) * (1e9 if unit in "bB" else 1e6) for number, unit in _SIZE.findall(name)]
    return max(sizes, default=None)


def _window(name: str) -> int | None:
    """Return the window that a folder's config states; None: unknown."""
    window = _config(name).get("max_position_embeddings")
    return window if type(window) is int and window > 0 else None


def _config(name: str) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads((Path(name) / "config.json").read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
