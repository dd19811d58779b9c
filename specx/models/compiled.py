"""Layers compiled by torch, for work that is long enough to pay for it.

Norms, rotary embeddings and activations are many small kernels, which cost a third of a step even
in a CUDA graph; compiled, they are few. One layer is compiled for each number of new tokens and
serves all layers. torch caches what it compiled on disk, so only the first run waits long.
"""

from typing import Any

import torch

VARIANTS = 16  # target and draft share code, each with a few numbers of new tokens


def compile_layers(model: Any, backend: str = "inductor") -> None:
    """Compile the decoder layers of a model of transformers, from their next forward pass on."""
    # Both models and all their layers are one piece of code to torch, which gives up after 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    for layer in model.get_decoder().layers:
        layer.compile(dynamic=False, fullgraph=True, backend=backend)
