"""Choosing layers of a target once, on generated documents; the cache folder keeps them."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from specx.cache_folder import cache_folder
from specx.decoding.decode import decode
from specx.decoding.methods import Pair
from specx.decoding.sources import usual_layer
from specx.documents.generated import generate_report
from specx.errors import SpecxError, UsageError
from specx.models.load import LoadedModel
from specx.profile import ASKING, AutoTree, InstructPrompt, Profile, Settings, TreeSettings, resolve
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.records import Method, Step, Tally
from specx.reports.writers import write_text_atomic
from specx.runs.measured_sources import MeasuredSentence, layer_scores, measure_sentences
from specx.runs.text import prompt_kind

DOCUMENTS = 2
PROMPT_TOKENS = 6144  # long enough for retrieval to have something to choose from
OUTPUT_TOKENS = 64  # decoded for each layer and prompt
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


def measure_source_layer(
    pair: Pair, profile: Profile, phase: Callable[[str], None]
) -> dict[str, int]:
    """Measure the layer whose attention tells sources best, on generated documents, and keep it.

    Return this ``layer``, and of how many ``sentences`` it is told. ``right``: how many of the
    ``strong`` ones, which depend on one passage strongly, attend to it most in that layer, and
    ``usually`` in the layer that is asked where none was measured.

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
    settings = resolve(profile, "plain", pair.facts)
    kind = Instruct.of(pair.target.tokenizer, prompt)
    sentences: list[MeasuredSentence] = []
    for seed in range(SOURCE_DOCUMENTS):
        phase(f"leaving passages out of document {seed + 1} of {SOURCE_DOCUMENTS}")
        document = generate_report(characters=4 * SOURCE_TOKENS, seed=SOURCE_SEED + seed)
        asked = kind.prompts(document, SOURCE_TOKENS)[0]
        sentences += measure_sentences(pair, settings, kind, asked)
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
    return {
        "layer": layer,
        "sentences": len(sentences),
        "strong": len(strong),
        "right": sum(sentence.is_right(layers.index(layer)) for sentence in strong),
        "usually": sum(sentence.is_right(layers.index(usual)) for sentence in strong),
    }


def resolve_measured(
    profile: Profile,
    method: Method,
    pair: Pair,
    phase: Callable[[str], None],
    asked: frozenset[str] = frozenset(),
) -> Settings:
    """Resolve a profile, with the best layer for ``draft_cache.layer: auto``.

    ``phase``: as in ``measured_layer``; ``asked``: as in ``resolve``, whose errors this raises.
    """
    layer = measured_layer(profile, pair, phase) if method in ASKING else None
    return resolve(profile, method, pair.facts, layer=layer, asked=asked)


def measured_layer(profile: Profile, pair: Pair, phase: Callable[[str], None]) -> int | None:
    """Return the best layer for ``draft_cache.layer: auto``, None where the profile asks for none.

    It is measured once for each pair and retrieval setting, and ``phase`` is told so. Later runs
    read the cache folder.
    """
    facts = pair.facts
    profile = profile.on(facts.device)
    if profile.draft_cache.layer != "auto" or profile.draft_cache.policy != "cross-model":
        return None
    if not pair.target.full_layers:  # nothing is retrieved
        return 0
    known = _cache_file()
    layers = _read(known)
    key = _key(profile, pair)
    if layers.get(key) not in pair.target.full_layers:
        phase("calibrating the retrieval layer (once for this pair)")
        window = resolve(profile, "plain", facts).window
        kind = prompt_kind(profile.prompt, pair.target.tokenizer)
        prompts = _prompts(kind, min(PROMPT_TOKENS, window * 3 // 4))
        layers[key] = best_layer(score_layers(pair, profile, prompts))
        # A read-only home costs time, not the summary.
        with contextlib.suppress(OSError, SpecxError):
            _write(known, layers)
    return layers[key]


def score_layers(
    pair: Pair, profile: Profile, prompts: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Measure the acceptance length that every layer's choice of chunks leads to.

    ``prompts``: token ids; the figures are over all of them together. The output is the same for
    every layer, so they compare like with like.
    """
    # Layers are compared with one and the same tree.
    tree = TreeSettings() if isinstance(profile.tree, AutoTree) else profile.tree
    profile = profile.changed(
        generation={"max_new_tokens": OUTPUT_TOKENS}, fallback={"below": None}, tree=tree
    )
    found = {}
    for layer in pair.target.full_layers:  # others choose what the nearest of these chooses
        settings = resolve(profile, "specextend", pair.facts, layer=layer)
        tally = Tally()
        for prompt in prompts:
            for event in decode(pair, settings, prompt):
                if isinstance(event, Step):
                    tally.add(event)
        found[layer] = tally.acceptance_length
    return found


def best_layer(scores: Mapping[int, float]) -> int:
    """Choose the layer with the longest acceptance; of equals the deepest, as in the paper."""
    return max(scores, key=lambda layer: (scores[layer], layer))


def _prompts(kind: Digest | Instruct, tokens: int) -> list[tuple[int, ...]]:
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
