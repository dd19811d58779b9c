"""Config keys of models with recurrent states, and the layout of their weights in GGUF files."""

from typing import Any

from specx.models.families.config import FULL
from specx.models.families.delta import CONVERTED, CONVOLUTION, LINEAR, TILED
from specx.models.gguf.metadata import Metadata


def with_states(keys: Metadata, _: object, *, tiled: bool = True) -> dict[str, Any]:
    """Return the config keys of models with a delta rule (Qwen3.5, Qwen3-Next).

    ``tiled``: the converter has reordered the value heads; it has not for Qwen3-Next.
    """
    values, every = keys.count(".ssm.time_step_rank"), keys.count(".full_attention_interval", 4)
    layers = keys.count(".block_count") - keys.count(".nextn_predict_layers", 0)
    inner = keys.count(".ssm.inner_size")
    if layers < 1 or not values or inner % values or not every:
        keys.refuse(
            f"there are {layers} layers, every {every}th with full attention, and {values} value "
            f"heads of together {inner} elements"
        )
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
    """Return the keys of models with a delta rule and experts; ``tiled``: as in ``with_states``."""
    return {
        **with_states(keys, tensors, tiled=tiled),
        "intermediate_size": keys.count(".expert_feed_forward_length"),
        "shared_expert_intermediate_size": keys.count(".expert_shared_feed_forward_length"),
        "norm_topk_prob": True,  # as llama.cpp computes it
    }


def with_convolutions(keys: Metadata, _: object) -> dict[str, Any]:
    """Return the config keys of LFM2. Its layers without key heads are convolutions."""
    heads = keys.counts(".attention.head_count_kv", keys.count(".block_count"))
    if len({*heads} - {0}) != 1:
        keys.refuse(f"layers have {sorted({*heads})} heads of keys")
    return {
        "num_key_value_heads": max(heads),
        "layer_types": [FULL if each else CONVOLUTION for each in heads],
        "conv_L_cache": keys.count(".shortconv.l_cache"),
        "norm_eps": keys.number(".attention.layer_norm_rms_epsilon", 1e-5),
        "block_auto_adjust_ff_dim": False,
    }


def with_convolutions_and_experts(keys: Metadata, tensors: object) -> dict[str, Any]:
    """Return the config keys of LFM2 with experts."""
    return {
        **with_convolutions(keys, tensors),
        "num_dense_layers": keys.count(".leading_dense_block_count", 0),
        "routed_scaling_factor": keys.number(".expert_weights_scale", 1.0),
    }
