"""Layers compiled by torch, for work that is long enough to pay for it.

Norms, rotary embeddings and activations are many small kernels, which cost a third of a step even
in a CUDA graph; compiled, they are few. One layer is compiled for each number of new tokens and
serves all layers; so are the angles before the layers and the norm behind them. torch caches what
it compiled on disk, so only the first run waits long.

Layers that are fused (``fused_layers.py``) are left alone: there is nothing to gain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from specx.models.fused_layers import is_fused
from specx.models.load import LoadedModel
from specx.models.projections import merge_products, share_projections

VARIANTS = 16  # target and draft share code, each with a few numbers of new tokens


def compile_layers(loaded: LoadedModel, backend: str = "inductor") -> LoadedModel:
    """Compile the decoder layers, from their next forward pass on, unless they are fused."""
    if loaded.decoder_spec is not None or is_fused(loaded.model):
        return loaded
    decoder = loaded.model.get_decoder()
    # Both models and all their layers are one piece of code to torch, which gives up after 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    share_projections(decoder)
    for module in (*decoder.layers, decoder.rotary_emb, decoder.norm):
        module.compile(dynamic=False, fullgraph=True, backend=_merging(backend))
    return replace(loaded, compiled=True)


@cache  # torch compiles anew for every backend that is another object
def _merging(backend: str) -> Callable[[GraphModule, list[Tensor]], Any]:
    """Return the backend for graphs in which shared products are computed once."""
    compile_graph = torch._dynamo.lookup_backend(backend)

    def merged(graph: GraphModule, inputs: list[Tensor]) -> Any:
        merge_products(graph)
        return compile_graph(graph, inputs)

    return merged


@contextmanager
def around_forward(model: LoadedModel, storage: Tensor, *, eager: bool) -> Iterator[None]:
    """Prepare one forward pass, if the layers are compiled: this takes a second to import.

    storage [layers, 2, Hkv, capacity, D] of the cache. ``eager``: not this time.
    """
    if not model.compiled:
        yield
        return
    torch._dynamo.mark_dynamic(storage, 3)  # one piece of code serves caches of any capacity
    with torch.compiler.set_stance("force_eager" if eager else "default"):
        yield


@contextmanager
def uncompiled(loaded: LoadedModel) -> Iterator[None]:
    """Put the layers back as they were before ``compile_layers``, until the block ends.

    Not ``force_eager``: transformers may compile the model in its own way inside.
    """
    layers = loaded.model.get_decoder().layers if loaded.compiled else []
    calls = [layer._compiled_call_impl for layer in layers]
    try:
        for layer in layers:
            layer._compiled_call_impl = None
        yield
    finally:
        for layer, call in zip(layers, calls, strict=True):
            layer._compiled_call_impl = call
