"""Metadata of a config that only some families have, from the metadata of a file."""

from collections.abc import Mapping
from typing import Any

from specx.models.gguf.container import PackedTensor
from specx.models.gguf.metadata import Metadata
from specx.models.gguf.rotary import rotary

Config = dict[str, Any]
Tensors = Mapping[str, PackedTensor]
SLIDING, FULL = "sliding_attention", "full_attention"
_SIGMOID = 2  # llama.cpp's number of the function that makes scores of logits


def head_dim(keys: Metadata) -> int:
    """Return the size of a head. Raises ModelError where keys and values differ."""
    even = keys.count(".embedding_length") // max(1, keys.count(".attention.head_count"))
    size = keys.count(".attention.key_length", even)
    if not size or keys.count(".attention.value_length", size) != size:
        keys.refuse("keys and values have heads of different sizes, which is not supported")
    return size


def _windows(keys: Metadata, every: int, default: int | None = None) -> Config:
    """Return window and kinds of layers: those of the file, or each ``every``-th a full one."""
    layers, pattern = keys.count(".block_count"), keys.raw(".attention.sliding_window_pattern")
    if isinstance(pattern, list):
        slides = keys.flags(".attention.sliding_window_pattern")
        if len(slides) < layers:
            keys.refuse(f"there are {layers} layers and {len(slides)} kinds of layers")
    else:
        every = keys.count(".attention.sliding_window_pattern", every)
        slides = [bool(every and (i + 1) % every) for i in range(layers)]
    kinds = [SLIDING if slide else FULL for slide in slides[:layers]]
    return {
        "sliding_window": keys.count(".attention.sliding_window", default) or None,
        "layer_types": kinds,
    }


def _has_bias(tensors: Tensors, name: str) -> bool:
    return f"blk.0.{name}.bias" in tensors


def nothing(_: Metadata, __: Tensors) -> Config:
    return {}


def ernie(_: Metadata, tensors: Tensors) -> Config:
    return {"use_bias": _has_bias(tensors, "attn_q")}


def attention_bias(_: Metadata, tensors: Tensors) -> Config:
    return {"attention_bias": _has_bias(tensors, "attn_q")}


def llama(keys: Metadata, tensors: Tensors) -> Config:
    mlp_bias = _has_bias(tensors, "ffn_up")
    return {**attention_bias(keys, tensors), "mlp_bias": mlp_bias}


def _experts(
    keys: Metadata, count: str = "num_experts", used: str = "num_experts_per_tok"
) -> Config:
    return {count: keys.count(".expert_count"), used: keys.count(".expert_used_count")}


def mixtral(keys: Metadata, _: Tensors) -> Config:
    return {**_experts(keys, "num_local_experts"), "sliding_window": None}


def qwen3_moe(keys: Metadata, _: Tensors) -> Config:
    return {
        **_experts(keys),
        "moe_intermediate_size": keys.count(".expert_feed_forward_length"),
        "norm_topk_prob": True,  # as llama.cpp computes it
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def olmoe(keys: Metadata, _: Tensors) -> Config:
    limit = ".attention.clamp_kqv"
    return {
        **_experts(keys),
        "norm_topk_prob": False,  # as llama.cpp computes it
        "clip_qkv": (keys.number(limit) or None) if limit in keys else None,
    }


def glm4_moe(keys: Metadata, tensors: Tensors) -> Config:
    if keys.count(".expert_gating_func", _SIGMOID) != _SIGMOID:
        keys.refuse("experts are chosen by other scores than a sigmoid's")
    layers = keys.count(".block_count") - keys.count(".nextn_predict_layers", 0)
    if layers < 1:
        keys.refuse("all layers predict further tokens")
    return {
        **_experts(keys, "n_routed_experts"),
        "num_hidden_layers": layers,
        "attention_bias": _has_bias(tensors, "attn_q"),
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
        "moe_intermediate_size": keys.count(".expert_feed_forward_length"),
        "n_shared_experts": keys.count(".expert_shared_count"),
        "first_k_dense_replace": keys.count(".leading_dense_block_count", 0),
        "routed_scaling_factor": keys.number(".expert_weights_scale", 1.0),
        "norm_topk_prob": keys.flag(".expert_weights_norm", False),
        "n_group": keys.count(".expert_group_count", 1),
        "topk_group": keys.count(".expert_group_used_count", 1),
    }


def ernie_moe(keys: Metadata, tensors: Tensors) -> Config:
    return {
        **ernie(keys, tensors),
        **_experts(keys, "moe_num_experts", "moe_k"),
        "moe_intermediate_size": keys.count(".expert_feed_forward_length"),
        "moe_num_shared_experts": keys.count(".expert_shared_count", 0),
        "moe_layer_start_index": keys.count(".leading_dense_block_count", 0),
        "moe_layer_end_index": -1,
        "moe_layer_interval": keys.count(".interleave_moe_layer_step", 1),
    }


def gpt_oss(keys: Metadata, tensors: Tensors) -> Config:
    rope = rotary(keys, tensors, head_dim(keys), 150_000.0)
    return {
        **_windows(keys, 2),
        **_experts(keys, "num_local_experts"),
        "intermediate_size": keys.count(".expert_feed_forward_length"),
        "rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {}),
        "attention_bias": True,
    }


def _scalar(keys: Metadata, wide_layers: int) -> int:
    """Return the size whose root divides queries: of Gemma's 27B, as wide as a model of it is."""
    hidden, heads = keys.count(".embedding_length"), keys.count(".attention.head_count")
    wide = keys.count(".block_count") == wide_layers and heads
    return hidden // heads if wide else keys.count(".attention.key_length")


def gemma2(keys: Metadata, _: Tensors) -> Config:
    return {
        **_windows(keys, 2, 4096),
        "attn_logit_softcapping": keys.number(".attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number(".final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": _scalar(keys, 46),
    }


def _two_ropes(keys: Metadata, full: Config) -> Config:
    local = keys.number(".rope.freq_base_swa", 10_000.0)
    return {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": local}}


def gemma3(keys: Metadata, tensors: Tensors) -> Config:
    caps = ".final_logit_softcapping"
    full = rotary(keys, tensors, keys.count(".attention.key_length"), 1_000_000.0)
    return {
        **_windows(keys, 6, 0),
        "final_logit_softcapping": keys.number(caps) if caps in keys else None,
        "query_pre_attn_scalar": _scalar(keys, 62),
        "rope_parameters": _two_ropes(keys, full),
    }


def gemma4(keys: Metadata, tensors: Tensors) -> Config:
    if keys.count(".expert_count", 0):
        keys.refuse("Gemma 4 has experts, which specx does not read from GGUF yet")
    layers, windows = keys.count(".block_count"), _windows(keys, 6)
    kinds = windows["layer_types"]
    kv = keys.counts(".attention.head_count_kv", layers)
    wide = keys.counts(".feed_forward_length", layers)
    by_kind = {kind: {kv[i] for i in range(layers) if kinds[i] == kind} for kind in kinds}
    if any(len(counts) > 1 for counts in by_kind.values()) or len(by_kind) < 2:
        keys.refuse("layers of one kind have different numbers of key heads")
    shared = keys.count(".attention.shared_kv_layers", 0)
    first_full = kinds.index(FULL)
    per_layer = tensors.get("per_layer_token_embd.weight")
    caps = ".final_logit_softcapping"
    full_rope = _proportional(keys, tensors)
    return {
        **windows,
        "head_dim": keys.count(".attention.key_length_swa"),
        "global_head_dim": keys.count(".attention.key_length"),
        "num_key_value_heads": by_kind[SLIDING].pop(),
        "num_global_key_value_heads": by_kind[FULL].pop(),
        "attention_k_eq_v": f"blk.{first_full}.attn_v.weight" not in tensors,
        "num_kv_shared_layers": shared,
        "intermediate_size": wide[0],
        "use_double_wide_mlp": wide[-1] > wide[0],
        "hidden_size_per_layer_input": keys.count(".embedding_length_per_layer_input", 0),
        "vocab_size_per_layer_input": per_layer.shape[0] if per_layer else 0,
        "final_logit_softcapping": keys.number(caps) if caps in keys else None,
        "enable_moe_block": False,
        "rope_parameters": _two_ropes(keys, full_rope),
    }


def _proportional(keys: Metadata, tensors: Tensors) -> Config:
    """Return the rotation of Gemma 4's full layers, whose factors are 1 where it turns."""
    theta = keys.number(".rope.freq_base", 1_000_000.0)
    share = 0.25
    if "rope_freqs.weight" in tensors:
        factors = tensors["rope_freqs.weight"].floats().tolist()
        share = sum(factor == 1 for factor in factors) / len(factors)
    return {"rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": theta}


def phi3(keys: Metadata, _: Tensors) -> Config:
    context = keys.count(".context_length")
    return {
        "sliding_window": keys.count(".attention.sliding_window", 0) or None,
        "original_max_position_embeddings": keys.count(
            ".rope.scaling.original_context_length", context
        ),
    }


def smollm3(keys: Metadata, tensors: Tensors) -> Config:
    turns = [int((i + 1) % 4 != 0) for i in range(keys.count(".block_count"))]
    return {**llama(keys, tensors), "no_rope_layers": turns}


def granite(keys: Metadata, tensors: Tensors) -> Config:
    return {
        **llama(keys, tensors),
        "attention_multiplier": keys.number(".attention.scale", 1.0),
        "embedding_multiplier": keys.number(".embedding_scale", 1.0),
        "residual_multiplier": keys.number(".residual_scale", 1.0),
        "logits_scaling": keys.number(".logit_scale", 1.0),
    }


def granite_moe(keys: Metadata, tensors: Tensors) -> Config:
    return {**granite(keys, tensors), **_experts(keys, "num_local_experts")}


def cohere(keys: Metadata, tensors: Tensors) -> Config:
    return {
        "logit_scale": keys.number(".logit_scale"),
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
        "attention_bias": False,
    }


def cohere2(keys: Metadata, _: Tensors) -> Config:
    windows = _windows(keys, 4)
    return {**windows, "logit_scale": keys.number(".logit_scale"), "attention_bias": False}


def olmo3(keys: Metadata, tensors: Tensors) -> Config:
    full = rotary(keys, tensors, head_dim(keys), 500_000.0)
    local = {"rope_type": "default", "rope_theta": full["rope_theta"]}
    return {**_windows(keys, 4), "rope_parameters": {FULL: full, SLIDING: local}}


def exaone4(keys: Metadata, _: Tensors) -> Config:
    if not keys.count(".attention.sliding_window", 0):
        return {"sliding_window": None, "layer_types": [FULL] * keys.count(".block_count")}
    return _windows(keys, 4)


def starcoder2(_: Metadata, tensors: Tensors) -> Config:
    return {"use_bias": _has_bias(tensors, "attn_q"), "sliding_window": None}


def ministral3(keys: Metadata, tensors: Tensors) -> Config:
    rope = rotary(keys, tensors, head_dim(keys), 1_000_000.0)
    if ".attention.temperature_scale" in keys:
        rope["llama_4_scaling_beta"] = keys.number(".attention.temperature_scale")
        rope["max_position_embeddings"] = keys.count(".context_length")
    return {"rope_parameters": rope, "sliding_window": None}
