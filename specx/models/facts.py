"""The properties of a model that the engine needs, as numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

from specx.errors import ModelError
from specx.models.families.config import FULL
from specx.models.families.frequencies import rope_kind

FIXED = frozenset({"default", "linear", "llama3", "yarn"})
LENGTHENED = frozenset({"linear", "yarn"})  # kinds whose factor lengthens the window
_INCLUDED = frozenset({"gemma3", "gemma3_text"})  # whose stated length has the factor in it
_NO_LIMIT = 10**9  # tokenizers state "no limit" as a number above this


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RoPE settings of a config, or those of its layers with full attention."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nested = {key: value for key, value in settings.items() if isinstance(value, dict)}
    if not nested:
        return dict(settings)
    return dict(nested.get(FULL) or next(iter(nested.values())))


def window(config: Mapping[str, Any], tokenizer_limit: int | None = None) -> int:
    """Return the longest input in tokens that the config states.

    ``max_position_embeddings`` is the length before scaling for linear and yarn, whose factor
    extends it, and the length after scaling for all others. A dynamic model is limited to the
    length before scaling, because its frequencies would change from step to step beyond that
    length. Configs disagree on whether the number includes the factor (Gemma 3's does), so a
    tokenizer limit between the two decides.

    Raises ModelError if the config states no length.
    """
    stated = config.get("max_position_embeddings")
    if not isinstance(stated, int) or stated < 1:
        raise ModelError(
            f"The config.json of the {config['model_type']} model states no "
            "max_position_embeddings, the maximum length of its input; choose another model."
        )
    settings = rope_of(config)
    if rope_kind(settings) not in LENGTHENED or config["model_type"] in _INCLUDED:
        return stated
    original = settings.get("original_max_position_embeddings") or stated
    longest = max(stated, round(original * float(settings.get("factor") or 1.0)))
    limits = (config.get("max_sequence_length"), tokenizer_limit)
    between = [n for n in limits if n is not None and n < _NO_LIMIT and stated <= n <= longest]
    return min([longest, *between])


def eos_token_ids(stated: Iterable[Any], rows: int) -> frozenset[int]:
    """Merge the end-of-text ids of several sources: an id, a list of ids, or None each.

    ``rows``: the number of the model's ids; ids outside of it are dropped.
    """
    found: set[int] = set()
    for ids in stated:
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(i for i in found if 0 <= i < rows)  # some configs state -1 for "none"
