"""A loaded model as transformers runs it by itself, for comparison."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import GenerationConfig

from specx.models import attention as dispatch
from specx.models.compiled import uncompiled
from specx.models.fused_layers import unfused
from specx.models.load import LoadedModel
from specx.models.quiet import quiet_transformers

ATTENTION = "sdpa"  # what transformers chooses for itself


@contextmanager
def stock(loaded: LoadedModel) -> Iterator[Any]:
    """The model with transformers' own attention, layers that are neither compiled nor fused, and
    no settings of generation but transformers' defaults; behind the block all is as it was."""
    model = loaded.model
    settings = model.generation_config
    model.generation_config = GenerationConfig()
    model.set_attn_implementation(ATTENTION)
    try:
        with quiet_transformers(), uncompiled(loaded), unfused(model):
            yield model
    finally:
        model.set_attn_implementation(dispatch.NAME)
        model.generation_config = settings
