"""The time of one level of a draft's tree: ``python -m specx.bench.level``, on a GPU.

Models of the 68M shape with random weights, trees of 64 rows, a cache of 1K, a vocabulary of
32,000; layers, last norm, logits, softmax and the choice of the best are counted in. Trees of two
depths are grown in a CUDA graph each: what the deeper one takes longer, over the levels between.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from specx.bench.retrieval_cost import Place, median_ms
from specx.bench.shapes import DRAFTS, Shape
from specx.engine.forward import cache_shape
from specx.engine.grower import TreeGrower
from specx.engine.kv_cache import PreallocatedCache
from specx.models import attention as dispatch
from specx.models.fused_layers import fuse_layers
from specx.models.load import LoadedModel, ModelSpec, in_memory, load_model
from specx.profile import TreeSettings

CACHED = 1024
NODES = 63  # and a root: 64 rows
DEPTHS = 3, 10


def level_ms(model: LoadedModel) -> float:
    """Return the milliseconds of one level, on a cache of random rows."""
    shallow, deep = (median_ms(_growth(model, depth), model.device) for depth in DEPTHS)
    return (deep - shallow) / (DEPTHS[1] - DEPTHS[0])


def _growth(model: LoadedModel, depth: int) -> Callable[[], object]:
    """Return the work of growing one tree."""
    vocabulary = model.model.config.vocab_size
    allowed = torch.ones(vocabulary, dtype=torch.bool, device=model.device)
    grower = TreeGrower(model, allowed, TreeSettings(nodes=NODES, depth=depth, threshold=0.0))
    cache = PreallocatedCache(cache_shape(model), CACHED + grower.rows)
    cache.storage.normal_()
    cache.length.fill_(CACHED)
    logits = torch.randn(1, vocabulary, dtype=model.dtype, device=model.device)
    root = torch.zeros(1, dtype=torch.int64, device=model.device)
    return partial(torch.inference_mode()(grower.grow), root, logits, cache)


def random_model(shape: Shape, place: Place) -> LoadedModel:
    """Return a Llama with random weights, ready for the engine."""
    config = LlamaConfig(**shape.config(), max_position_embeddings=2 * CACHED)
    # Not cast as a whole: rotary frequencies stay in float32, as in a model that was loaded.
    model = AutoModelForCausalLM.from_config(config, dtype=place.dtype).to(place.device)
    model.requires_grad_(False).eval()
    dispatch.use_in(model)
    tokenizer = load_model(ModelSpec("embedded:draft"), "cpu", "draft").tokenizer
    loaded = in_memory(model, tokenizer, f"random {shape.name}")
    fuse_layers(model, loaded.ops)
    return loaded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    place = Place(torch.device(parser.parse_args().device), torch.bfloat16)
    shape = DRAFTS["68m"]
    for layers in (2, 3):
        model = random_model(replace(shape, num_layers=layers), place)
        print(json.dumps({"layers": layers, "level_ms": round(level_ms(model), 4)}), flush=True)


if __name__ == "__main__":
    main()
