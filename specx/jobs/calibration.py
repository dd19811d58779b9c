"""Choosing the retrieval layer of a pair once, on generated documents; the cache keeps it."""

import contextlib
import hashlib
import json
from pathlib import Path

from specx.cache_folder import cache_folder
from specx.documents.generated import generate_report
from specx.engine.calibrate import best_layer, score_layers
from specx.engine.methods import Pair, with_layer
from specx.errors import SpecxError
from specx.jobs.listener import Phases
from specx.models.load import LoadedModel
from specx.profile import Profile
from specx.prompts.prompt import PromptKind
from specx.reports.writers import write_text_atomic

DOCUMENTS = 2
PROMPT_TOKENS = 6144  # long enough for retrieval to have something to choose from


def resolve_layer(
    profile: Profile, pair: Pair, kind: PromptKind, listener: Phases, window: int
) -> Profile:
    """Return the profile with ``draft_cache.layer: auto`` replaced by the best layer.

    It is measured once for each pair and retrieval setting. Later runs read the cache folder.
    """
    if profile.draft_cache.layer != "auto" or profile.draft_cache.policy != "cross-model":
        return profile
    if not pair.target.full_layers:  # nothing is retrieved
        return with_layer(profile, 0)
    known = _cache_file()
    layers = _read(known)
    key = _key(profile, pair)
    if layers.get(key) not in pair.target.full_layers:
        listener.phase("calibrating the retrieval layer (once for this pair)")
        prompts = _prompts(kind, min(PROMPT_TOKENS, window * 3 // 4))
        layers[key] = best_layer(score_layers(pair, profile, prompts))
        # A read-only home costs time, not the summary.
        with contextlib.suppress(OSError, SpecxError):
            known.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(known, json.dumps(layers, indent=2, sort_keys=True) + "\n")
    return with_layer(profile, layers[key])


def _prompts(kind: PromptKind, tokens: int) -> list[tuple[int, ...]]:
    """Return prompts of generated documents, each of at most ``tokens`` tokens."""
    prompts = []
    for seed in range(DOCUMENTS):
        document = generate_report(characters=4 * tokens, seed=seed)
        prompts.append(kind.prompts(document, tokens)[0].token_ids)
    return prompts


def _key(profile: Profile, pair: Pair) -> str:
    """Hash everything that changes the outcome: the loaded models and the draft's settings."""
    assert pair.draft is not None
    assert profile.draft is not None
    parts = [
        _identity(pair.target, profile.target.revision),
        _identity(pair.draft, profile.draft.revision),
        profile.tree.model_dump_json(),
        profile.draft_cache.model_dump_json(),
        profile.prompt.model_dump_json(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _identity(model: LoadedModel, revision: str | None) -> str:
    """Identify a loaded model; a folder by its resolved path, as ``./draft`` may change."""
    folder = Path(model.source).expanduser()
    name = folder.resolve() if folder.is_dir() else model.source
    return f"{name} {revision} {model.weight_bytes} {model.dtype}"


def _cache_file() -> Path:
    return cache_folder() / "layers.json"


def _read(path: Path) -> dict[str, int]:
    """Return the known layers, none if the file is missing or not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: layer for key, layer in found.items() if type(layer) is int}
