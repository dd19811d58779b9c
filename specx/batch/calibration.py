"""Calibrating a pair once, on generated documents, and remembering the outcome."""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from specx.batch.listener import Listener
from specx.decoding.calibrate import best_layer, score_layers
from specx.decoding.methods import Pair, with_layer
from specx.documents.generated import generate_report
from specx.documents.prompt import PromptKind
from specx.errors import SpecxError
from specx.profile import Profile
from specx.reports.writers import write_text_atomic

DOCUMENTS = 2
PROMPT_TOKENS = 6144  # long enough for retrieval to have something to choose from


def resolve_layer(
    profile: Profile, pair: Pair, kind: PromptKind, listener: Listener, window: int
) -> Profile:
    """The profile with ``draft_cache.layer: auto`` replaced by the layer measured best.

    Measured once for each pair and retrieval setting; later runs read the cache folder.
    """
    if profile.draft_cache.layer != "auto" or profile.draft_cache.policy != "cross-model":
        return profile
    known = _cache_file()
    layers = _read(known)
    key = _key(profile, pair)
    if key not in layers:
        listener.phase("calibrating the retrieval layer (once for this pair)")
        prompts = _prompts(kind, min(PROMPT_TOKENS, window * 3 // 4))
        layers[key] = best_layer(score_layers(pair, profile, prompts))
        with contextlib.suppress(
            OSError, SpecxError
        ):  # a read-only home costs time, not the summary
            known.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(known, json.dumps(layers, indent=2, sort_keys=True) + "\n")
    return with_layer(profile, layers[key])


def _prompts(kind: PromptKind, tokens: int) -> list[tuple[int, ...]]:
    """Prompts of at most ``tokens`` tokens from generated documents."""
    prompts = []
    for seed in range(DOCUMENTS):
        document = generate_report(characters=4 * tokens, seed=seed)
        prompts.append(kind.prompts(document, tokens)[0].token_ids)
    return prompts


def _key(profile: Profile, pair: Pair) -> str:
    """Whatever changes the outcome: models as they are loaded, and how the draft works."""
    assert pair.draft is not None
    parts = [
        *(
            f"{model.source} {model.weight_bytes} {model.dtype}"
            for model in (pair.target, pair.draft)
        ),
        profile.tree.model_dump_json(),
        profile.draft_cache.model_dump_json(),
        profile.prompt.model_dump_json(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return folder / "specx" / "layers.json"


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}
