"""RoPE kinds and the window, read from configs in either spelling."""

from typing import Any

import pytest

from specx.errors import ModelError
from specx.models.facts import rope_of, window
from specx.models.families.frequencies import rope_kind


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "default"),
        ({"rope_scaling": None}, "default"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "linear"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "llama3"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {"rope_theta": 1e6}}, "default"),
        ({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "dynamic"),
    ],
)
def test_kind(settings: dict[str, Any], kind: str) -> None:
    assert rope_kind(rope_of(settings)) == kind


@pytest.mark.parametrize(
    ("stated", "rope", "limit", "expected"),
    [
        (131072, {"rope_type": "llama3", "factor": 8.0}, 131072, 131072),  # Llama 3.1
        (4096, {"rope_type": "linear", "factor": 4.0}, 16384, 16384),  # Vicuna 16K
        (16384, {"rope_type": "linear", "factor": 4.0}, 16384, 16384),  # DeepSeek Coder
        (16384, {"rope_type": "linear", "factor": 4.0}, 10**30, 65536),
        (4096, {"rope_type": "linear", "factor": 4.0}, 2048, 16384),
        (
            32768,
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            131072,
            131072,
        ),  # Qwen2.5
        (
            163840,
            {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            None,
            163840,
        ),  # DeepSeek
        (2048, {"rope_type": "dynamic", "factor": 4.0}, None, 2048),
        (40960, {}, 131072, 40960),  # Qwen3
    ],
)
def test_window(stated: int, rope: dict[str, Any], limit: int | None, expected: int) -> None:
    config = {"model_type": "llama", "max_position_embeddings": stated, "rope_parameters": rope}
    assert window(config, limit) == expected


def test_window_that_is_not_stated() -> None:
    with pytest.raises(ModelError, match="states no max_position_embeddings"):
        window({"model_type": "llama"})
