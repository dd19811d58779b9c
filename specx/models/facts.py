"""The facts that the engine needs of a model, in numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specx.models.rope import RopeFacts, rope_facts, window


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Shapes and limits of a decoder.

    ``vocab_size`` counts the rows of the lm head, padding included. ``window`` is the longest
    input in tokens. ``eos_token_ids`` joins those of the generation config, the config and the
    tokenizer. ``rope`` is None for a model without rotary position embeddings, or with several.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    window: int
    eos_token_ids: frozenset[int]
    rope: RopeFacts | None


def model_facts(model: Any, tokenizer: Any) -> ModelFacts:
    """Read the facts from a loaded model. Raises ModelError when it states no window."""
    config = model.config
    heads, stated = config.num_attention_heads, (model.generation_config, config, tokenizer)
    rows = model.get_output_embeddings().weight.shape[0]
    return ModelFacts(
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        hidden_size=config.hidden_size,
        vocab_size=rows,
        window=window(config, getattr(tokenizer, "model_max_length", None)),
        eos_token_ids=eos_token_ids((getattr(each, "eos_token_id", None) for each in stated), rows),
        rope=rope_facts(model),
    )


def eos_token_ids(stated: Iterable[Any], rows: int) -> frozenset[int]:
    """Join ids that end a text, each one or several or None, of a model with so many ids."""
    found: set[int] = set()
    for ids in stated:
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(i for i in found if 0 <= i < rows)  # some configs state -1 for "none"
