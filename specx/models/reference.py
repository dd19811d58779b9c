"""A model as transformers computes it, to compare with: its own class, loaded a second time."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor

from specx.models.gguf.checkpoint import read_checkpoint
from specx.models.gguf.modules import transformers_config, transformers_model
from specx.models.load import LoadedModel
from specx.models.memory import check_memory
from specx.models.quiet import quiet_transformers
from specx.models.source import ModelSource, locate

_BESIDE = 1.2  # of a model's weights: what it takes to load and run it


class Reference:
    """The model of a ``LoadedModel`` with transformers' own attention and layers.

    ``allowed``: bool [V]; no other id is chosen.

    Raises OutOfMemoryError when there is no memory for a second copy, ModelError when its files
    are not there any more, and what transformers raises.
    """

    def __init__(self, model: LoadedModel, revision: str | None, allowed: torch.Tensor) -> None:
        source = locate(model.source, revision, "target")
        check_memory(int(_BESIDE * model.weight_bytes), model.device, "Another copy of the target")
        with quiet_transformers():
            loaded = load_own_class(source, model.dtype)
        self._model: Any = loaded.to(model.device).eval()
        self._model.generation_config = GenerationConfig()  # else its own would change the choice
        self._allowed = _Allowed(allowed)

    @torch.inference_mode()
    def generate(self, prompt: tuple[int, ...], tokens: int) -> tuple[list[int], torch.Tensor]:
        """Return so many of the most probable tokens behind ``prompt``, and their logits [T, V]."""
        ids = torch.tensor([prompt], dtype=torch.int64, device=self._model.device)
        with quiet_transformers():
            found = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                logits_processor=[self._allowed],
                do_sample=False,
                max_new_tokens=tokens,
                return_dict_in_generate=True,
                output_logits=True,
            )
        return found.sequences[0, len(prompt) :].tolist(), torch.cat(found.logits)


def load_own_class(source: ModelSource, dtype: torch.dtype) -> Any:
    """Load a model in its own class of transformers, on the CPU. Raises what transformers does."""
    if source.gguf is not None:
        gguf = read_checkpoint(source.gguf, source.label)
        return transformers_model(gguf, transformers_config(gguf), dtype)[0]
    return AutoModelForCausalLM.from_pretrained(
        source.folder,
        dtype=dtype,
        trust_remote_code=False,
        local_files_only=True,
        weights_only=True,
    )


class _Allowed(LogitsProcessor):
    def __init__(self, allowed: torch.Tensor) -> None:
        self._forbidden = ~allowed

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return scores.masked_fill(self._forbidden, -torch.inf)
