"""GGUF files of dense models in their own classes of transformers."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specx.models.gguf.checkpoint import read_checkpoint


def load_own_class(file: Path, dtype: torch.dtype) -> Any:
    """Load a GGUF file in its own class of transformers, on the CPU."""
    gguf = read_checkpoint(file, str(file))
    config = AutoConfig.for_model(**gguf.config)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    weights = {name: weight.floats() for name, weight in gguf.weights.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if config.tie_word_embeddings else [])
    model.tie_weights()
    return model.eval()
