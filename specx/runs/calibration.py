"""Choosing layers of a target once, on generated documents; the cache folder keeps them."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specx.cache_folder import cache_folder
from specx.decoding.calibrate import best_layer, score_layers
from specx.decoding.methods import Pair, with_layer
from specx.decoding.sources import usual_layer
from specx.documents.generated import generate_report
from specx.errors import SpecxError, UsageError
from specx.models.load import LoadedModel
from specx.profile import InstructPrompt, Profile
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import PromptKind
from specx.reports.writers import write_text_atomic
from specx.runs.measured_sources import MeasuredSentence, layer_scores, measure_sentences

DOCUMENTS = 2
PROMPT_TOKENS = 6144  # long enough for retrieval to have something to choose from
SOURCE_DOCUMENTS, SOURCE_TOKENS, SOURCE_SEED = 12, 1024, 1000
FEWEST_STRONG = 10  # sentences; with fewer the best layer is chosen by chance


def source_layer(target: LoadedModel, revision: str | None) -> int | None:
    """Return the layer of a model whose attention tells sources best, as far as is known.

    None: all layers have windows, and tell nothing of the document in front of them.
    """
    measured = _read(_source_file()).get(_model_key(target, revision))
    if measured in target.full_layers:
        return measured
    return usual_layer(target.full_layers, target.num_layers)


@dataclass(frozen=True, kw_only=True)
class SourceLayer:
    """The layer that tells sources best, of what was measured.

    ``right``: how many of the ``strong`` sentences, which depend on one passage strongly, attend
    to it most there, and ``usually`` in the layer that is asked where none was measured.
    """

    layer: int
    sentences: int
    strong: int
    right: int
    usually: int


def measure_source_layer(pair: Pair, profile: Profile, phase: Callable[[str], None]) -> SourceLayer:
    """Measure the layer whose attention tells sources best, on generated documents, and keep it.

    Raises UsageError where the model's sentences depend on no passage, its tokenizer does not tell
    tokens' places, or the cache folder cannot be written.
    """
    prompt = profile.prompt
    assert isinstance(prompt, InstructPrompt)
    if not pair.target.full_layers:
        raise UsageError(
            f"every layer of {pair.target.source} has a window, so its attention does not tell "
            "sources; choose a model with layers that see the whole text"
        )
    kind = Instruct.of(pair.target.tokenizer, prompt)
    sentences: list[MeasuredSentence] = []
    for seed in range(SOURCE_DOCUMENTS):
        phase(f"leaving passages out of document {seed + 1} of {SOURCE_DOCUMENTS}")
        document = generate_report(characters=4 * SOURCE_TOKENS, seed=SOURCE_SEED + seed)
        asked = kind.prompts(document, SOURCE_TOKENS)[0]
        sentences += measure_sentences(pair, profile, kind, asked)
    layers, scores = pair.target.full_layers, layer_scores(sentences)
    usual = usual_layer(layers, pair.target.num_layers)
    assert usual is not None
    strong = [sentence for sentence in sentences if sentence.is_strong]
    if len(strong) < FEWEST_STRONG:
        raise UsageError(
            f"only {len(strong)} of {len(sentences)} sentences that {pair.target.source} wrote "
            f"depend on one passage, too few to compare layers; sources are told by layer {usual}"
        )
    layer = max(layers, key=lambda each: (scores[layers.index(each)], -abs(each - usual)))
    file, key = _source_file(), _model_key(pair.target, profile.target.revision)
    _write(file, _read(file) | {key: layer})
    first = [
        sum(not s.place(s.attention[layers.index(each)]).better for s in strong)
        for each in (layer, usual)
    ]
    return SourceLayer(
        layer=layer, sentences=len(sentences), strong=len(strong), right=first[0], usually=first[1]
    )


def resolve_layer(
    profile: Profile,
    pair: Pair,
    kind: PromptKind,
    phase: Callable[[str], None],
    window: int,
) -> Profile:
    """Return the profile with ``draft_cache.layer: auto`` replaced by the best layer.

    It is measured once for each pair and retrieval setting, and ``phase`` is told so. Later runs
    read the cache folder.
    """
    if profile.draft_cache.layer != "auto" or profile.draft_cache.policy != "cross-model":
        return profile
    if not pair.target.full_layers:  # nothing is retrieved
        return with_layer(profile, 0)
    known = _cache_file()
    layers = _read(known)
    key = _key(profile, pair)
    if layers.get(key) not in pair.target.full_layers:
        phase("calibrating the retrieval layer (once for this pair)")
        prompts = _prompts(kind, min(PROMPT_TOKENS, window * 3 // 4))
        layers[key] = best_layer(score_layers(pair, profile, prompts))
        # A read-only home costs time, not the summary.
        with contextlib.suppress(OSError, SpecxError):
            _write(known, layers)
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
    known = f"{name} {revision} {model.weight_bytes} {model.dtype}"
    return f"{known} {model.cache_dtype}" if model.cache_dtype else known


def _model_key(target: LoadedModel, revision: str | None) -> str:
    return hashlib.sha256(_identity(target, revision).encode()).hexdigest()[:32]


def _cache_file() -> Path:
    return cache_folder() / "layers.json"


def _source_file() -> Path:
    return cache_folder() / "source-layers.json"


def _write(path: Path, layers: dict[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, json.dumps(layers, indent=2, sort_keys=True) + "\n")


def _read(path: Path) -> dict[str, int]:
    """Return the known layers, none if the file is missing or not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: layer for key, layer in found.items() if type(layer) is int}
