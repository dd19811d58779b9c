"""Print the README's table of machines and profiles, with the memory that each profile needs.

``python docs/memory_table.py`` computes weights and KV caches of target and draft from the sizes
in the models' ``config.json`` files, which ``specx doctor --recommend`` has as well.
``python docs/memory_table.py 65536 131072`` does it for other lengths: tokens of prompt and output
together.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specx.cli.recommend import PACKED, PUBLISHED, kind_of
from specx.models.decoder_files import parameters
from specx.models.families import read_architecture
from specx.models.families.family import Architecture
from specx.profile import Profile, load_profile

LENGTHS = (8192, 16384, 32768)
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}  # of a number; auto: on a GPU
EMBEDDED = Path(__file__).parents[1] / "specx" / "models" / "embedded"
GB = 10**9

# What is in use besides weights and caches: at most so much was measured (docs/performance.md).
BESIDES = 1.5 * GB

# Machines with their memory in GiB (of laptops what a system and a browser leave), and profiles for
# them.
MACHINES = (
    ("any laptop", 6, ("mini", "smollm2")),
    ("laptop with 8 GB", 6, ("qwen3-1.7b-gguf",)),
    ("laptop with 16 GB", 13, ("qwen3-4b-gguf",)),
    ("laptop with 32 GB", 28, ("qwen3-8b-gguf",)),
    ("GPU with 8 GB", 8, ("qwen3-4b-gguf",)),
    ("GPU with 12 GB", 12, ("qwen3-8b-gguf", "qwen2.5-3b")),
    ("GPU with 16 GB", 16, ("qwen3-14b-gguf",)),
    ("GPU with 24 GB", 24, ("qwen3-32b-gguf", "llama-3.1-8b", "qwen3-8b")),
    ("GPU with 48 GB", 48, ("qwen3-14b",)),
    ("GPU with 80 GB or more", 80, ("qwen3-32b",)),
)


def table(lengths: Sequence[int] = LENGTHS) -> str:
    """Return the table as Markdown."""
    heads = ["your machine", "profile", "target + draft", "weights", *map(_length, lengths)]
    rows = [heads, ["---"] * len(heads)]
    for machine, memory, names in MACHINES:
        for name in names:
            profile = load_profile(name).on("cuda" if "GPU" in machine else "cpu")
            rows.append([machine, *_cells(profile, lengths, memory * 2**30)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def needed(profile: Profile, length: int) -> int:
    """Return the bytes of weights and KV caches for ``length`` tokens of prompt and output.

    The draft has a row for every token in its store, and those of its working cache.
    """
    cache = profile.draft_cache
    rows = {"target": length, "draft": length + cache.chunk * cache.top_k}
    number = BYTES[profile.target.dtype]  # bytes of one in a KV cache
    return sum(
        weights + number * rows[role] * _cache_width(found)
        for role, found, weights in _models(profile)
    )


def _cells(profile: Profile, lengths: Sequence[int], memory: int) -> Iterator[str]:
    yield f"`{profile.name}`"
    window = _config(profile.target.model)["max_position_embeddings"]
    yield " + ".join(_count(_parameters(found)) for _, found, _ in _models(profile))
    yield _gigabytes(sum(weights for _, _, weights in _models(profile)))
    for length in lengths:
        if length > window:  # a longer document is summarized in parts
            yield "in parts"
        else:
            bytes_needed = needed(profile, length)
            too_much = bytes_needed + BESIDES > memory
            yield _gigabytes(bytes_needed) + (", too much" if too_much else "")


def _models(profile: Profile) -> Iterator[tuple[str, Architecture, int]]:
    """Yield role, architecture and bytes of the weights of target and draft."""
    for role, settings in (("target", profile.target), ("draft", profile.draft)):
        if settings is None:
            continue
        found = read_architecture(_config(settings.model), settings.model)
        size = PACKED.get(kind_of(settings.model), BYTES[profile.target.dtype])
        yield role, found, int(size * _parameters(found))


def _parameters(found: Architecture) -> int:
    norms = found.spec.hidden * (2 * len(found.spec.layers) + 1)
    return parameters(found.spec, found.weights) + norms


def _config(model: str) -> dict[str, Any]:
    if not model.startswith("embedded:"):
        return PUBLISHED[model]
    file = EMBEDDED / model.removeprefix("embedded:") / "config.json"
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config


def _cache_width(found: Architecture) -> int:
    """Return how many numbers a token takes in the KV cache: keys and values of all layers."""
    layers = [layer.attention for layer in found.spec.layers]
    return sum(2 * each.kv_heads * each.head_dim for each in layers)


def _length(tokens: int) -> str:
    return f"{tokens // 1024}K"


def _gigabytes(count: int) -> str:
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 10**6:.0f} MB"


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


if __name__ == "__main__":
    print(table([int(length) for length in sys.argv[1:]] or LENGTHS))
