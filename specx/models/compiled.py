"""Layers compiled by torch, for work that is long enough to pay for it.

Norms, rotary embeddings and activations are many small kernels, which cost a third of a step even
in a CUDA graph; compiled, they are few. One layer is compiled for each number of new tokens and
serves all layers. torch caches what it compiled on disk, so only the first run waits long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from specx.models.load import LoadedModel

VARIANTS = 16  # target and draft share code, each with a few numbers of new tokens


def compile_layers(loaded: LoadedModel, backend: str = "inductor") -> LoadedModel:
    """The model with decoder layers that are compiled, from their next forward pass on."""
    # Both models and all their layers are one piece of code to torch, which gives up after 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    for layer in loaded.model.get_decoder().layers:
        layer.compile(dynamic=False, fullgraph=True, backend=backend)
    return replace(loaded, compiled=True)


@contextmanager
def around_forward(model: LoadedModel, storage: Tensor, *, eager: bool) -> Iterator[None]:
    """What one forward pass needs, if the layers are compiled: this takes a second to import.

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
    """The layers as they were before ``compile_layers``, until the block ends.

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
