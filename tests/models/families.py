"""Small random models of every family: the oracle that decoders are held against."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from specx.decoding.layer_state import DeltaGroup, DeltaStates
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.checkpoint import text_name
from specx.models.decoder import Decoder
from specx.models.families import read_architecture
from specx.models.families.weight_reader import WeightReader
from specx.ops.ancestors import AncestorMask
from specx.ops.byte_rows import row_size
from specx.ops.contract import Ops
from specx.ops.torch.backend import CpuOps

CPU = torch.device("cpu")
WINDOW = 12
SIZES = {
    "vocab_size": 131,
    "hidden_size": 144,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 32,  # not 144 / 9
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWED = {"sliding_window": WINDOW}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"]}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
DIVIDED = {key: value for key, value in SIZES.items() if key != "head_dim"}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
PER_LAYER = {"vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 6}
GEMMA4 = SIZES | {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": WINDOW,
}


# Small parts that see, which are never read.
VISION = {
    "gemma3": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
               "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    "gemma4": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
               "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8},
    "mistral3": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16,
                 "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8,
                 "image_size": 28, "patch_size": 14},
    "qwen2_5_vl": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                   "out_hidden_size": 144},
    "gemma4_unified": {},
    "qwen2_vl": {"depth": 1, "embed_dim": 16, "hidden_size": 144, "num_heads": 2},
    "exaone4_5": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                  "num_key_value_heads": 2, "out_hidden_size": 144},
    "muse_glimmer": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                     "num_attention_heads": 2},
    "qwen3_vl_moe": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                     "out_hidden_size": 144, "deepstack_visual_indexes": [0]},
    "qwen3_5": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                "out_hidden_size": 144},
    "qwen3_5_moe": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                    "out_hidden_size": 144},
    "qwen3_vl": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                 "out_hidden_size": 144, "deepstack_visual_indexes": [0]},
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A model of a family: what is special about it, and the settings of its config.

    ``length``: tokens of a text. ``outer``: the type of a model of which it is the text part.
    """

    family: str
    feature: str
    settings: dict[str, Any]
    length: int = 40
    outer: str = ""

    def __str__(self) -> str:
        return f"{self.family}: {self.feature}"


def _cells() -> Iterator[Cell]:
    tied = {"tie_word_embeddings": True}
    untied = {"tie_word_embeddings": False}
    bias = {"attention_bias": True}
    yield Cell("llama", "9 heads, 3 key heads", SIZES)
    yield Cell("llama", "tied, biases", SIZES | tied | bias | {"mlp_bias": True})
    yield Cell("llama", "llama3 frequencies", SIZES | {"rope_parameters": LLAMA3})
    linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    yield Cell("llama", "linear frequencies", SIZES | {"rope_parameters": linear})
    yield Cell("llama", "yarn", SIZES | {"rope_parameters": YARN})
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}
    ntk = SIZES | {"rope_parameters": dynamic, "max_position_embeddings": 24}
    yield Cell("llama", "dynamic NTK, short", ntk, length=22)
    yield Cell("llama", "dynamic NTK, long", ntk)
    yield Cell("mistral", "a window in all layers", SIZES | WINDOWED)
    yield Cell("mistral", "no window", SIZES | {"sliding_window": None})
    yield Cell("ministral", "windows in some layers", SIZES | WINDOWED | ALTERNATING)
    rope3 = YARN | {"llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0}
    yield Cell("ministral3", "temperature of queries", SIZES | {"rope_parameters": rope3})
    yield Cell("qwen2", "biases of heads", SIZES)
    windows = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    yield Cell("qwen2", "windows in some layers, tied", SIZES | windows | tied)
    yield Cell("qwen3", "norms of heads", SIZES)
    yield Cell("qwen3", "windows in some layers, biases, tied", SIZES | windows | tied | bias)
    yield Cell("smollm3", "layers without positions", SIZES | {"no_rope_layers": [1, 0]})
    yield Cell("phi3", "joined maps", DIVIDED)
    partial = {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 24}
    phi4 = DIVIDED | partial | {"rope_parameters": LONGROPE} | tied
    yield Cell("phi3", "longrope of a part, short", phi4, length=24)
    yield Cell("phi3", "longrope of a part, long", phi4)
    yield Cell("phi3", "a window in all layers", DIVIDED | WINDOWED)
    yield Cell("gemma", "wide norms, scaled embeddings", SIZES)
    scalar = {"query_pre_attn_scalar": 24}
    yield Cell("gemma2", "caps of scores and logits", SIZES | scalar | WINDOWED | ALTERNATING)
    capped = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
    yield Cell("gemma2", "low caps", SIZES | scalar | WINDOWED | ALTERNATING | capped | untied)
    yield Cell(
        "gemma3_text", "frequencies by kind of layer", SIZES | scalar | WINDOWED | ALTERNATING
    )
    both = {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    scaled = SIZES | scalar | WINDOWED | ALTERNATING | {"rope_parameters": both}
    yield Cell("gemma3_text", "scaled frequencies, biases", scaled | bias)
    last = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4}
    yield Cell("gemma4_text", "two head sizes", GEMMA4 | ALTERNATING | PER_LAYER)
    shared = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}
    yield Cell("gemma4_text", "shared keys and values", GEMMA4 | last | PER_LAYER | shared)
    equal = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    none = {"hidden_size_per_layer_input": 0, "final_logit_softcapping": 3.0}
    yield Cell("gemma4_text", "keys as values", GEMMA4 | ALTERNATING | equal | none)
    yield Cell("olmo2", "norms of whole heads, behind", SIZES)
    yield Cell("olmo3", "windows in some layers", SIZES | WINDOWED | ALTERNATING)
    scaled = {
        "full_attention": YARN,
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    yield Cell("olmo3", "yarn", SIZES | WINDOWED | ALTERNATING | {"rope_parameters": scaled})
    loud = {"logit_scale": 0.7}
    yield Cell("cohere", "parallel, interleaved", SIZES | bias | loud)
    normed = SIZES | {"use_qk_norm": True} | untied | loud
    yield Cell("cohere", "norms of single heads", normed)
    yield Cell("cohere2", "windows beside no positions", DIVIDED | WINDOWED | ALTERNATING | loud)
    scales = {
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
    }
    yield Cell("granite", "multipliers", SIZES | scales | bias)
    hybrid = (
        SIZES
        | scales
        | {
            "num_local_experts": 0,
            "shared_intermediate_size": 80,
            "layer_types": ["full_attention"] * 2,
            "mamba_n_heads": 12,
        }
    )
    yield Cell("granitemoehybrid", "no positions", hybrid)
    yield Cell(
        "granitemoehybrid", "positions, tied", hybrid | {"position_embedding_type": "rope"} | tied
    )
    yield Cell("glm", "a part interleaved, biases", SIZES)
    yield Cell("glm4", "norms on both sides", SIZES | {"attention_bias": False})
    yield Cell("seed_oss", "biases of heads", SIZES)
    yield Cell("seed_oss", "all biases", SIZES | {"attention_out_bias": True, "mlp_bias": True})
    yield Cell("ernie4_5", "interleaved, tied", SIZES)
    yield Cell("ernie4_5", "biases", SIZES | {"use_bias": True} | untied)
    sixteen = {"head_dim": 16}  # its output is as wide as the hidden states
    yield Cell("helium", "interleaved, wide norms", SIZES | sixteen)
    yield Cell("helium", "biases but behind attention", SIZES | sixteen | bias | {"mlp_bias": True})
    yield Cell("starcoder2", "LayerNorm, plain MLP", SIZES)
    yield Cell("starcoder2", "a window, no biases", SIZES | WINDOWED | {"use_bias": False} | untied)
    yield Cell("stablelm", "LayerNorm, a quarter turns", DIVIDED)
    own = {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True}
    yield Cell("stablelm", "parallel, a norm for each head, biases", DIVIDED | own)
    yield Cell("nemotron", "norms around 0, half turns", SIZES)
    yield Cell("nemotron", "all biases, tied", SIZES | tied | bias | {"mlp_bias": True})
    yield Cell("apertus", "xielu", SIZES | {"rope_parameters": LLAMA3})
    yield Cell("arcee", "squared ReLU", SIZES | {"mlp_bias": True})
    yield Cell("hunyuan_v1_dense", "norms behind RoPE", SIZES)
    alpha = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}
    yield Cell("hunyuan_v1_dense", "NTK by alpha", SIZES | {"rope_parameters": alpha} | tied)
    yield Cell("exaone4", "windows beside no positions", SIZES | WINDOWED | ALTERNATING)
    full = {"sliding_window": None, "layer_types": ["full_attention"] * 2}
    yield Cell("exaone4", "no windows", SIZES | full | tied)
    swa = scales | WINDOWED | ALTERNATING | {"layer_rope_theta": [3e4, 0]}
    yield Cell("granite_swa", "sinks, a base for each layer", DIVIDED | swa)
    yield Cell("granite_swa", "one base, biases", DIVIDED | swa | bias | {"layer_rope_theta": None})
    yield Cell("cwm", "windows, llama3", DIVIDED | WINDOWED | ALTERNATING | {"head_dim": 16}
               | {"rope_parameters": LLAMA3})  # fmt: skip
    yield from _cells_with_states()
    yield from _cells_with_experts()
    yield from _text_parts()


def _cells_with_states() -> Iterator[Cell]:
    """Yield models that keep a state of the text in some layers."""
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    hybrid = SIZES | {
        "num_hidden_layers": 3,
        "layer_types": kinds,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 24,
        "rms_norm_eps": 1e-3,  # of what a state returns, which is small at first
    }
    first = {"layer_types": ["linear_attention"] * 2 + ["full_attention"]}
    tied = {"tie_word_embeddings": True, "linear_num_key_heads": 6, "linear_conv_kernel_dim": 3}
    yield Cell("qwen3_5_text", "a delta rule", hybrid)
    yield Cell("qwen3_5_text", "a delta rule, tied, biases", hybrid | tied | first
               | {"attention_bias": True})  # fmt: skip
    experts = {"num_experts": 12, "num_experts_per_tok": 4, "moe_intermediate_size": 40}
    experts |= {"shared_expert_intermediate_size": 56}
    yield Cell("qwen3_next", "a delta rule, joined maps, experts", hybrid | experts)
    dense = {"mlp_only_layers": [1], "norm_topk_prob": False}
    yield Cell("qwen3_next", "a delta rule, a dense layer", hybrid | experts | first | dense)
    olmo = DIVIDED | {"num_hidden_layers": 3, "layer_types": kinds}
    still = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
    yield Cell("olmo_hybrid", "a delta rule, no positions", olmo | still)
    turned = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    sizes = {key: hybrid[key] for key in hybrid if key.startswith("linear")}
    one = {"linear_allow_neg_eigval": False} | first
    yield Cell("olmo_hybrid", "a delta rule, positions", olmo | turned | sizes | one)
    lfm2 = DIVIDED | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
    yield Cell("lfm2", "short convolutions", lfm2)
    wider = {"conv_L_cache": 4, "block_auto_adjust_ff_dim": False}
    yield Cell("lfm2", "short convolutions, untied", lfm2 | wider | {"tie_word_embeddings": False})


def _cells_with_experts() -> Iterator[Cell]:
    tied, bias = {"tie_word_embeddings": True}, {"attention_bias": True}
    untied = {"tie_word_embeddings": False}
    few = {"num_experts_per_tok": 2}
    small = {"moe_intermediate_size": 40}
    normed = {"norm_topk_prob": True}
    local = few | {"num_local_experts": 6}
    yield Cell("mixtral", "two of six experts", SIZES | local)
    yield Cell("mixtral", "experts, a window", SIZES | local | WINDOWED | tied)
    shared = small | few | {"num_experts": 6, "shared_expert_intermediate_size": 56}
    yield Cell("qwen2_moe", "a shared expert with a gate", DIVIDED | shared)
    windows = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    dense = {"mlp_only_layers": [1]}
    yield Cell("qwen2_moe", "dense layers, windows", DIVIDED | shared | windows | dense | normed)
    qwen3 = small | {"num_experts": 12, "num_experts_per_tok": 4}
    yield Cell("qwen3_moe", "scores as they are", SIZES | qwen3 | bias)
    every = {"decoder_sparse_step": 2}
    yield Cell("qwen3_moe", "normed, every other layer", SIZES | qwen3 | normed | every | tied)
    yield Cell("olmoe", "norms of whole heads, experts", DIVIDED | few | {"num_experts": 6})
    lfm2 = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
    yield Cell("lfm2_moe", "short convolutions, experts",
               DIVIDED | qwen3 | lfm2 | {"num_dense_layers": 1})  # fmt: skip
    scales = {
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
    }
    yield Cell("granitemoe", "multipliers, stacked experts", DIVIDED | local | scales)
    groups = {"n_routed_experts": 12, "n_group": 3, "topk_group": 2, "num_experts_per_tok": 3}
    more = small | groups | {"n_shared_experts": 2, "routed_scaling_factor": 2.5}
    yield Cell("glm4_moe", "groups, a correction", SIZES | more | {"use_qk_norm": True})
    plain = more | {"first_k_dense_replace": 0, "norm_topk_prob": False, "n_group": 1}
    yield Cell("glm4_moe", "no groups, not normed", SIZES | plain | {"topk_group": 1} | bias)
    yield Cell("dots1", "a dense layer, groups", SIZES | more | {"first_k_dense_replace": 1})
    alternating = WINDOWED | ALTERNATING | normed
    yield Cell("dots1", "windows in some layers, normed", SIZES | more | alternating)
    ernie = small | {"moe_num_experts": 6, "moe_k": 2, "num_hidden_layers": 3}
    yield Cell("ernie4_5_moe", "a correction, interleaved", DIVIDED | ernie)
    lone = {"moe_num_shared_experts": 0, "moe_layer_interval": 2, "moe_layer_end_index": 1}
    yield Cell(
        "ernie4_5_moe", "no shared expert, every other layer", DIVIDED | ernie | lone | untied
    )
    hunyuan = {"num_experts": 5, "moe_topk": [1, 3]}
    yield Cell("hunyuan_v1_moe", "another number in each layer", SIZES | hunyuan)
    minimax = local | {"rotary_dim": 8}
    yield Cell("minimax_m2", "a part turns, sigmoids", SIZES | minimax)
    oss = local | WINDOWED | {"swiglu_limit": 1.0}
    yield Cell("gpt_oss", "sinks, clamps, biases", SIZES | oss)
    trinity = small | few | {"num_experts": 6, "num_shared_experts": 1, "num_dense_layers": 1}
    windows = WINDOWED | {"layer_types": ["full_attention", "sliding_attention"]}
    yield Cell("afmoe", "gated attention, two norms", SIZES | trinity | windows)
    mup = {"mup_enabled": True, "route_scale": 2.0, "num_dense_layers": 0}
    yield Cell("afmoe", "scaled embeddings", SIZES | trinity | mup | WINDOWED | ALTERNATING)
    yield Cell("phimoe", "a mixer, LayerNorm", DIVIDED | local)
    mixed = bias | {"lm_head_bias": True, "router_jitter_noise": 0.3}
    yield Cell("phimoe", "all biases, more jitter", DIVIDED | local | mixed)
    command = few | {"num_experts": 6, "logit_scale": 0.7, "prefix_dense_intermediate_size": 56}
    command |= WINDOWED | {"mlp_layer_types": ["dense", "sparse"], "num_shared_experts": 2}
    yield Cell("cohere2_moe", "a dense layer, an average", SIZES | command | windows)
    summed = {"shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid"}
    summed |= {"rms_norm_eps": 1e-5, "mlp_layer_types": ["sparse"] * 2} | ALTERNATING
    yield Cell("cohere2_moe", "a sum, sigmoids, RMSNorm", SIZES | command | summed)
    exaone = more | {"num_experts": 12, "num_shared_experts": 1, "first_k_dense_replace": 1}
    exaone = SIZES | exaone | windows | normed
    yield Cell("exaone_moe", "windows beside no positions, groups", exaone)
    mla = DIVIDED | more | {"kv_lora_rank": 24, "q_lora_rank": 20, "first_k_dense_replace": 1}
    mla |= {"qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16}
    yield Cell("deepseek_v3", "latent keys and values", mla | {"num_key_value_heads": 9})
    yarn = YARN | {"mscale": 0.7, "mscale_all_dim": 1.1}
    flash = {key: each for key, each in mla.items() if key != "first_k_dense_replace"}
    flash |= {"num_key_value_heads": 9, "v_head_dim": 32}
    yield Cell("glm4_moe_lite", "latent keys and values as wide as keys", flash)
    lone = mla | {"q_lora_rank": None, "num_key_value_heads": 9, "rope_parameters": yarn}
    yield Cell("deepseek_v3", "latent keys, queries in one step, yarn", lone)
    lite = lone | {
        "n_group": None,
        "topk_group": None,
        "rope_parameters": YARN,
        "routed_scaling_factor": 1.3,
    }
    yield Cell("deepseek_v2", "latent keys, softmax, queries in one step", lite)
    yield Cell("deepseek_v2", "latent keys, softmax", lite | {"q_lora_rank": 20})
    groups = {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2}
    yield Cell("deepseek_v2", "latent keys, the best of a group", lite | groups)
    mild = {"swiglu_alpha": 1.2, "layer_types": ["full_attention"] * 2}
    yield Cell("gpt_oss", "no windows, other clamps", SIZES | oss | mild)


def _text_parts() -> Iterator[Cell]:
    """Yield the decoders of text in models that also read pictures."""
    tied = {"tie_word_embeddings": True}
    sections = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    mrope = {"rope_parameters": sections}
    sixteen = {"rope_parameters": sections | {"mrope_section": [2, 3, 3]}}
    yield Cell(
        "qwen2_5_vl_text", "a text part, biases of heads", DIVIDED | sixteen, outer="qwen2_5_vl"
    )
    yield Cell("qwen3_vl_text", "a text part, norms of heads", SIZES | mrope, outer="qwen3_vl")
    biased = SIZES | mrope | tied | {"attention_bias": True}
    yield Cell("qwen3_vl_text", "a text part, tied, biases", biased, outer="qwen3_vl")
    gemma = SIZES | {"query_pre_attn_scalar": 24} | WINDOWED | ALTERNATING
    yield Cell("gemma3_text", "a text part, windows", gemma, outer="gemma3")
    gemma4 = GEMMA4 | ALTERNATING | PER_LAYER
    yield Cell("gemma4_text", "a text part, two head sizes", gemma4, outer="gemma4")
    unified = GEMMA4 | ALTERNATING | {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    yield Cell("gemma4_unified_text", "pictures without a tower", unified, outer="gemma4_unified")
    beside = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2}
    beside |= {"moe_intermediate_size": 40, "hidden_size_per_layer_input": 0}
    beside = GEMMA4 | ALTERNATING | beside | {"use_bidirectional_attention": "vision"}
    yield Cell("gemma4_text", "experts beside the MLP", beside, outer="gemma4")
    yield Cell("qwen2_vl_text", "a text part, biases", DIVIDED | sixteen, outer="qwen2_vl")
    experts = mrope | {"num_experts": 12, "num_experts_per_tok": 4, "moe_intermediate_size": 40}
    experts = SIZES | experts | {"decoder_sparse_step": 2}
    yield Cell("qwen3_vl_moe_text", "a text part, stacked experts", experts, outer="qwen3_vl_moe")
    hybrid = SIZES | {"layer_types": ["linear_attention", "full_attention"]}
    hybrid |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
    yield Cell("qwen3_5_text", "a text part, a delta rule", hybrid, outer="qwen3_5")
    experts = {"num_experts": 12, "num_experts_per_tok": 4, "moe_intermediate_size": 40}
    experts = hybrid | experts | {"shared_expert_intermediate_size": 40}
    yield Cell("qwen3_5_moe_text", "a text part, a delta rule, experts", experts,
               outer="qwen3_5_moe")  # fmt: skip
    full = {"sliding_window": None, "layer_types": ["full_attention"] * 2}
    yield Cell("exaone4", "a text part, no windows", SIZES | full, outer="exaone4_5")
    muse = SIZES | WINDOWED | ALTERNATING | {"layer_rope_theta": [1e4, 0], "num_attention_heads": 6}
    muse |= {"output_multiplier": 0.8}
    yield Cell("muse_glimmer_text", "norms without weights, gated", muse, outer="muse_glimmer")
    yield Cell("mistral", "a text part, untied", SIZES | {"sliding_window": None}, outer="mistral3")
    rope3 = YARN | {"llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0}
    ministral = SIZES | tied | {"rope_parameters": rope3}
    yield Cell("ministral3", "a text part, temperature", ministral, outer="mistral3")


CELLS = tuple(_cells())


# A cell for each feature, for every run; the others are slow.
FEATURES = frozenset(
    {
        "tied, biases", "windows in some layers", "temperature of queries", "norms of heads",
        "layers without positions", "longrope of a part, long", "low caps", "two head sizes",
        "frequencies by kind of layer", "shared keys and values", "keys as values",
        "norms of whole heads, behind", "parallel, interleaved", "norms of single heads",
        "multipliers", "a part interleaved, biases", "LayerNorm, plain MLP", "xielu",
        "parallel, a norm for each head, biases", "norms around 0, half turns",
        "squared ReLU", "norms behind RoPE", "groups, a correction", "sinks, clamps, biases",
        "a text part, norms of heads", "gated attention, two norms", "experts beside the MLP",
        "norms without weights, gated", "a mixer, LayerNorm", "a sum, sigmoids, RMSNorm",
        "sinks, a base for each layer", "a delta rule", "a delta rule, joined maps, experts",
        "a delta rule, no positions", "short convolutions",
    }
)  # fmt: skip
# Of these, where machine code is tried in every run: it is compiled for each kind of layers.
COMPILED = frozenset({"tied, biases", "low caps", "norms of whole heads, behind"})

WITH_EXPERTS = frozenset(cell.feature for cell in _cells_with_experts())
WITH_STATES = frozenset(
    cell.feature
    for cell in CELLS
    if "a delta rule" in cell.feature or "short convolutions" in cell.feature
)
# What machine code has no passes for; layers are computed one by one.
LAYER_BY_LAYER = WITH_STATES | {
    "two head sizes", "a text part, two head sizes", "shared keys and values", "xielu",
    "norms without weights, gated", "gated attention, two norms", "scaled embeddings",
    "a dense layer, an average", "a sum, sigmoids, RMSNorm",
    *(cell.feature for cell in CELLS if "latent keys" in cell.feature),
}  # fmt: skip


def by_speed(quick: Callable[[Cell], bool], *others: Any, name: str = "") -> list[Any]:
    """Return all cells as parameters: the quick ones for every run, the others as slow."""
    return [
        pytest.param(
            cell, *others, marks=() if quick(cell) else pytest.mark.slow, id=f"{cell}{name}"
        )
        for cell in CELLS
    ]


class Layered(CpuOps):
    """Operations on a CPU by which layers are computed one by one."""

    def fused_forward(self, weights: Any) -> None:  # noqa: ARG002
        return None


LAYERED = Layered()
AT_ONCE = CpuOps()  # passes over few rows in machine code, where that is written for a model


class Read:
    """The tensors of a file, by name."""

    def __init__(
        self, tensors: dict[str, Tensor], dtype: torch.dtype, device: torch.device = CPU
    ) -> None:
        self.tensors, self.dtype, self.read = tensors, dtype, set[str]()
        self.device = device

    def joined(self, names: Any) -> Tensor:
        self.read |= set(names)
        found = [self.tensors[name].to(self.device, self.dtype) for name in names]
        return found[0] if len(found) == 1 else torch.cat(found)


def decoder_of(module: Any, ops: Ops = LAYERED, spare: float = float("inf")) -> Decoder:
    """A model of transformers as our own decoder, with copies of its weights.

    ``spare``: bytes that copies in other formats may take.
    """
    architecture = read_architecture(module.config.to_dict(), "The model")
    tensors = {name: weight.clone() for name, weight in module.state_dict().items()}
    reader = WeightReader(
        spec=architecture.spec,
        weight_map=architecture.weights,
        joined=Read(tensors, module.dtype).joined,
        prepack=ops.prepack,
    )
    return Decoder(reader.decoder(lambda: spare), ops)


@dataclass
class Pair:
    """A model of transformers, the config and the tensors that it writes, and our decoder."""

    cell: Cell
    oracle: Any
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    made: dict[Any, Decoder] = field(default_factory=dict)

    def decoder(
        self,
        length: int | None = None,
        ops: Ops = LAYERED,
        device: torch.device = CPU,
        dtype: torch.dtype | None = None,
    ) -> Decoder:
        """The decoder for texts of so many tokens."""
        key = length, type(ops), dtype
        if key not in self.made:
            architecture = read_architecture(self.config, "The model", length)
            names = architecture.weights.as_stored(self.tensors)
            tensors = Read(self.tensors, dtype or self.oracle.dtype, device)
            reader = WeightReader(
                spec=architecture.spec,
                weight_map=names,
                joined=tensors.joined,
                prepack=ops.prepack,
            )
            self.made[key] = Decoder(reader.decoder(lambda: float("inf")), ops)
            assert tensors.read == names.names(architecture.spec)
        return self.made[key]

    @cached_property
    def prompt(self) -> Tensor:
        return torch.randint(
            3, 131, (self.cell.length,), generator=torch.Generator().manual_seed(5)
        )

    @torch.no_grad()
    def expected(self, texts: list[list[int]]) -> Tensor:
        """The oracle's logits [N, L, V] of texts, each as long as the cell's length or padded."""
        longest = max(self.cell.length, *map(len, texts))
        ids = torch.tensor([text + [3] * (longest - len(text)) for text in texts])
        return self.oracle(ids, use_cache=False).logits

    def written(self, prompt: Tensor) -> list[int]:
        """Return the text that the oracle writes greedily behind a prompt, with it.

        Its ``generate`` changes frequencies that depend on the length while it writes. For these,
        the text is the one that the frequencies of its whole length give.
        """
        if "long" not in self.cell.feature.split():
            settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            written = self.oracle.generate(prompt[None], max_length=self.cell.length, **settings)
            return written[0].tolist()
        ids: list[int] = prompt.tolist()
        while len(ids) < self.cell.length:
            ids.append(int(self.expected([ids])[0, len(ids) - 1].argmax()))
        return ids


def make_pair(cell: Cell, folder: Path, dtype: torch.dtype = torch.float32) -> Pair:
    """Draw a model, write it, and read its config and tensors."""
    settings = {key: value for key, value in cell.settings.items() if value is not None}
    settings |= {
        key: None
        for key in ("pad_token_id", "sliding_window")
        if key in cell.settings and cell.settings[key] is None
    }
    settings, kind, classes = json.loads(json.dumps(settings)), cell.family, AutoModelForCausalLM
    if cell.outer:
        tied = settings.get("tie_word_embeddings", cell.family.startswith("gemma"))
        if cell.outer.startswith("gemma4"):  # which looks for it, to put pictures there
            settings |= {"pad_token_id": 0}
        settings = {
            "text_config": settings | {"model_type": cell.family},
            "vision_config": VISION[cell.outer],
            "tie_word_embeddings": tied,
        }
        kind, classes = cell.outer, AutoModelForImageTextToText
    config = AutoConfig.for_model(kind, **settings)
    complete(config)
    torch.manual_seed(1)
    oracle = classes.from_config(config, attn_implementation="eager", dtype=dtype)
    set_clamps(oracle, settings)
    randomize(oracle)
    oracle.eval().save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    return Pair(cell, oracle, written, {text_name(name): each for name, each in tensors.items()})


def complete(config: Any) -> None:
    """Say what published checkpoints say in words that transformers 5.17 does not read yet."""
    if config.model_type == "minimax_m2" and "partial_rotary_factor" not in config.rope_parameters:
        config.rope_parameters["partial_rotary_factor"] = config.rotary_dim / config.head_dim


def set_clamps(oracle: Any, settings: dict[str, Any]) -> None:
    """Give gpt-oss's experts the clamps of a config; transformers 5.17 has constants."""
    for module in oracle.modules():
        if hasattr(module, "alpha") and hasattr(module, "limit"):
            module.alpha = settings.get("swiglu_alpha", module.alpha)
            module.limit = settings.get("swiglu_limit", module.limit)


@torch.no_grad()
def randomize(model: Any) -> None:
    """Draw every weight, so that each matters: norms, biases and constants, too."""
    generator = torch.Generator().manual_seed(3)
    named = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in named:
        if "inv_freq" in name or name.endswith(("embed_scale", ".beta", ".eps")):
            continue
        drawn = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.ndim > 1 and "norm" not in name:
            tensor.copy_(drawn / tensor.shape[-1] ** 0.5)
        elif "norm" in name and name.endswith("weight"):
            tensor.add_(drawn * 0.3)  # around 1, or 0 where that is an offset
        else:
            tensor.add_(drawn * 0.3)


class Text:
    """A text in a decoder's storage: what it has read."""

    def __init__(
        self, decoder: Decoder, capacity: int = 96, ahead: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        """``ahead``: rows behind the text for which layers with a window have a ring. ``dtype``: of
        keys and values, None: the decoder's."""
        dtype = dtype or decoder.dtype
        self.decoder, self.length = decoder, 0
        self.storage: list[Any] = []
        self.states: list[DeltaStates] = []
        for layer in decoder.spec.layers:
            attention = layer.attention
            if attention.delta is not None:
                group = DeltaGroup(layers=1, attention=attention, inputs=decoder.dtype)
                state = group.state(0, None, decoder.dtype, decoder.device, decoder.ops)
                for each in state.states.tensors[2:]:  # all but what is before a text
                    each.fill_(torch.nan)
                self.states.append(state)
                self.storage.append(state.of(0))
                continue
            if attention.shared is not None:
                self.storage.append(self.storage[attention.shared])
                continue
            rows = capacity
            if ahead is not None and attention.window is not None:
                rows = min(capacity, attention.window + ahead)
            shape = (2, attention.kv_heads, rows, row_size(attention.head_dim, dtype))
            nothing = -1 if dtype == torch.int8 else torch.nan  # scales of these bits are NaN
            empty = torch.full(shape, nothing, dtype=dtype, device=decoder.device)
            self.storage.append(empty)

    @torch.no_grad()
    def read(self, ids: Tensor, wanted: Tensor | int = 0, shift: int = 0, **options: Any) -> Tensor:
        """Prefill; returns logits. ``shift``: of the positions, from those that rows have."""
        device = self.decoder.device
        rows = torch.arange(self.length, self.length + len(ids), device=device)
        call = PrefillCall(
            ops=self.decoder.ops,
            mapping=SlotMapping(self.storage, rows),
            past=self.length,
            **options,
        )
        logits = self.decoder.run(ids.to(device), rows + shift, call, wanted)
        for state in self.states:
            state.commit()
        self.length += len(ids)
        return logits.cpu()

    @torch.no_grad()
    def verify(
        self, ids: Tensor, parents: list[int], wanted: Tensor | int = 0, **options: Any
    ) -> Tensor:
        """Read a tree, whose rows may be wanted; returns logits."""
        sets, depths = [1], [0]
        for row, parent in enumerate(parents[1:], 1):
            sets.append(sets[parent] | (1 << row if row < 63 else -1 << 63))
            depths.append(depths[parent] + 1)
        device = self.decoder.device
        rows, positions = (self.length + torch.tensor(x) for x in ([*range(len(ids))], depths))
        call = TreeCall(
            ops=self.decoder.ops,
            mapping=SlotMapping(self.storage, rows.to(device)),
            prefix=torch.tensor([self.length], device=device),
            mask=AncestorMask(torch.tensor(sets, device=device)[:, None], len(ids)),
            **options,
        )
        wanted = wanted.to(device) if isinstance(wanted, Tensor) else wanted
        return self.decoder.run(ids.to(device), positions.to(device), call, wanted).cpu()

    def keep(self, path: list[int]) -> None:
        """Keep rows of the last tree."""
        rows = torch.tensor([*path, path[-1]], device=self.decoder.device)
        for state in self.states:
            state.keep(rows[:1], rows, torch.tensor(len(path), device=rows.device))
        rows_of = {id(each): each for each in self.storage if isinstance(each, Tensor)}
        for storage in rows_of.values():
            capacity = storage.shape[2]
            taken = storage[:, :, [(self.length + row) % capacity for row in path]]
            to = [(self.length + place) % capacity for place in range(len(path))]
            storage[:, :, to] = taken
        self.length += len(path)


@cache
def ancestors_of(parents: tuple[int, ...]) -> list[list[int]]:
    """Return the path of each row of a tree, itself included."""
    paths = [[0]]
    for row, parent in enumerate(parents[1:], 1):
        paths.append([*paths[parent], row])
    return paths
