"""The delta rule that a file states, as transformers' config has it, and how its weights lie."""

from typing import Any

from specx.models.families.config import FULL
from specx.models.families.delta import CONVERTED, LINEAR, TILED
from specx.models.gguf.metadata import Metadata


def with_states(keys: Metadata, _: object, *, tiled: bool = True) -> dict[str, Any]:
    """Return what models with a delta rule state of it (Qwen3.5, Qwen3-Next).

    ``tiled``: heads of values were reordered by the converter, which all but the first did.
    """
    values, every = keys.count(".ssm.time_step_rank"), keys.count(".full_attention_interval", 4)
    layers = keys.count(".block_count") - keys.count(".nextn_predict_layers", 0)
    inner = keys.count(".ssm.inner_size")
    if layers < 1 or not values or inner % values or not every:
        keys.refuse(f"there are {layers} layers, every {every}th a full one, and {values} heads")
    return {
        "num_hidden_layers": layers,
        "layer_types": [LINEAR if (i + 1) % every else FULL for i in range(layers)],
        "linear_conv_kernel_dim": keys.count(".ssm.conv_kernel"),
        "linear_key_head_dim": keys.count(".ssm.state_size"),
        "linear_num_key_heads": keys.count(".ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_value_head_dim": inner // values,
        CONVERTED: True,
        TILED: tiled,
    }


def with_experts(keys: Metadata, tensors: object, *, tiled: bool = True) -> dict[str, Any]:
    """Return the same of models with experts."""
    return {
        **with_states(keys, tensors, tiled=tiled),
        "intermediate_size": keys.count(".expert_feed_forward_length"),
        "shared_expert_intermediate_size": keys.count(".expert_shared_feed_forward_length"),
        "norm_topk_prob": True,  # as llama.cpp computes it
    }
