"""Models and tokenizers of transformers, written as GGUF as llama.cpp's converter writes them.

Names are those of the package ``gguf``; what the converter changes besides (rows of queries and
keys in pairs, norms with an offset, factors of frequencies) is done here as its readers expect it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

F32 = gguf.GGMLQuantizationType.F32
PERMUTED = {"llama", "mistral3", "smollm3", "granite", "granitehybrid", "granitemoe", "arcee"}
PERMUTED |= {"granite_swa", "muse-glimmer"}
STATEFUL = {"qwen35", "qwen35moe", "qwen3next"}
OFFSET = {"gemma", "gemma2", "gemma3", "nemotron", "muse-glimmer"} | STATEFUL
_COMMON = {
    "max_position_embeddings": "add_context_length",
    "hidden_size": "add_embedding_length",
    "intermediate_size": "add_feed_forward_length",
    "num_attention_heads": "add_head_count",
    "num_key_value_heads": "add_head_count_kv",
    "num_hidden_layers": "add_block_count",
    "rms_norm_eps": "add_layer_norm_rms_eps",
    "layer_norm_eps": "add_layer_norm_eps",
    "norm_epsilon": "add_layer_norm_eps",
    "head_dim": "add_key_length",
    "sliding_window": "add_sliding_window",
    "attn_logit_softcapping": "add_attn_logit_softcapping",
    "final_logit_softcapping": "add_final_logit_softcapping",
    "attention_multiplier": "add_attention_scale",
    "embedding_multiplier": "add_embedding_scale",
    "residual_multiplier": "add_residual_scale",
    "logits_scaling": "add_logit_scale",
    "logit_scale": "add_logit_scale",
    "num_local_experts": "add_expert_count",
    "num_experts_per_tok": "add_expert_used_count",
    "moe_intermediate_size": "add_expert_feed_forward_length",
    "moe_k": "add_expert_used_count",
    "n_shared_experts": "add_expert_shared_count",
    "moe_num_shared_experts": "add_expert_shared_count",
    "first_k_dense_replace": "add_leading_dense_block_count",
    "moe_layer_start_index": "add_leading_dense_block_count",
    "moe_layer_interval": "add_interleave_moe_layer_step",
    "routed_scaling_factor": "add_expert_weights_scale",
    "norm_topk_prob": "add_expert_weights_norm",
    "top_k_experts": "add_expert_used_count",
    "moe_topk": "add_expert_used_count",
    "num_shared_experts": "add_expert_shared_count",
    "shared_expert_intermediate_size": "add_expert_shared_feed_forward_length",
    "num_dense_layers": "add_leading_dense_block_count",
    "route_scale": "add_expert_weights_scale",
    "route_norm": "add_expert_weights_norm",
    "n_group": "add_expert_group_count",
    "topk_group": "add_expert_group_used_count",
    "kv_lora_rank": "add_kv_lora_rank",
    "q_lora_rank": "add_q_lora_rank",
}
_RENAMED = (  # of transformers' modules, to those that the package knows
    ("gate.moe_statics.e_score_correction_bias", "moe_statics.e_score_correction.bias"),
    ("mlp.e_score_correction_bias", "mlp.gate.e_score_correction.bias"),
    ("e_score_correction_bias", "e_score_correction.bias"),
    ("mlp.expert_bias", "mlp.expert_bias.bias"),
    ("feed_forward.expert_bias", "feed_forward.expert_bias.bias"),
    ("block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight"),
    ("layer_scalar", "layer_scalar.weight"),
    ("sinks", "sinks.weight"),
)
_KNOWN = {  # the architectures of the package whose names those have that it lacks
    "cohere2moe": "exaone-moe",
    "granite_swa": "granite",
    "muse-glimmer": "afmoe",
}
_BY_HAND = {  # as the converter names them itself
    "self_attn.sinks": "attn_sinks.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
}


def write_model(
    file: Path,
    model: Any,
    architecture: str,
    *,
    stated: dict[str, Any] | None = None,
    kind: Callable[[str, Any], gguf.GGMLQuantizationType] = lambda _, __: F32,
    tokenizer: Callable[[gguf.GGUFWriter], None] | None = None,
    changed: Callable[[gguf.GGUFWriter], None] | None = None,
    head: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a model.

    ``stated``: of its config, what transformers drops again. ``kind`` says by name and values how
    a tensor is stored. ``changed``: what another converter writes otherwise. ``head``: the weights
    of a head for further tokens.
    """
    writer = gguf.GGUFWriter(file, architecture)
    config = {**model.config.to_dict(), **(stated or {})}
    for key, method in _COMMON.items():
        if config.get(key) is not None:
            getattr(writer, method)(config[key])
    if config.get("norm_eps") is not None:
        of_rms = architecture.startswith("lfm2")
        add = writer.add_layer_norm_rms_eps if of_rms else writer.add_layer_norm_eps
        add(config["norm_eps"])
    _write_rotation(writer, config, architecture)
    _write_particulars(writer, config, architecture, stated or {}, model, has_head=head is not None)
    if tokenizer:
        tokenizer(writer)
    mla = f"{architecture}.attention.key_length_mla" in writer.kv_data[0]
    tensors = list(_tensors(model, architecture, mla=mla))
    if head is not None:
        layers = config["num_hidden_layers"]
        writer.kv_data[0].pop(f"{writer.arch}.block_count")
        writer.add_block_count(layers + 1)
        writer.add_nextn_predict_layers(1)
        tensors += _of_head(head, layers, architecture)
    for name, tensor in tensors:
        values = tensor.float().numpy()
        is_matrix = values.ndim > 1 and not name.endswith(("bias", "conv1d.weight", "conv.weight"))
        stored = kind(name, values) if is_matrix else F32
        packed = values if stored == F32 else gguf.quants.quantize(values, stored)
        writer.add_tensor(name, packed, raw_dtype=stored)
    if changed:
        changed(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_rotation(writer: gguf.GGUFWriter, config: dict[str, Any], architecture: str) -> None:
    rope = config["rope_parameters"]
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    share = rope.get("partial_rotary_factor", 1.0)
    heads = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if architecture != "gemma4":
        writer.add_rope_dimension_count(int(heads * share))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        stretch = config["max_position_embeddings"] / rope["original_max_position_embeddings"]
        by = math.sqrt(1 + math.log(stretch) / math.log(rope["original_max_position_embeddings"]))
        writer.add_rope_scaling_attn_factors(by)
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for name in ("long", "short"):
            writer.add_tensor(
                f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32)
            )
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, heads))
    if rope["rope_type"] == "proportional":
        whole, turned = config["global_head_dim"] // 2, int(config["global_head_dim"] * share / 2)
        factors = [1.0] * turned + [1e30] * (whole - turned)
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


def _llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    factors = []
    for i in range(0, head_dim, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        turns = rope["original_max_position_embeddings"] / wave
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (turns - low) / (high - low)
        between = 1 / ((1 - smooth) / rope["factor"] + smooth)
        factors.append(1.0 if turns > high else rope["factor"] if turns < low else between)
    return np.array(factors, np.float32)


def _again(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    writer.kv_data[0].pop(f"{writer.arch}.{key}", None)
    writer.add_uint32(f"{writer.arch}.{key}", value)


def _write_latent(writer: gguf.GGUFWriter, config: dict[str, Any], stated: dict[str, Any]) -> None:
    """Write the sizes of latent attention: as one key head, or, before 2025, as many."""
    key = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    if stated.get("before_2025"):
        _again(writer, "attention.key_length", key)
        writer.add_value_length(config["v_head_dim"])
    else:
        latent = config["kv_lora_rank"]
        _again(writer, "attention.key_length", latent + config["qk_rope_head_dim"])
        writer.add_value_length(latent)
        _again(writer, "attention.head_count_kv", 1)
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(config["v_head_dim"])
    _again(writer, "rope.dimension_count", config["qk_rope_head_dim"])
    if config["rope_parameters"].get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * config["rope_parameters"]["mscale_all_dim"])
    if config["model_type"] != "deepseek_v2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _write_particulars(
    writer: gguf.GGUFWriter,
    config: dict[str, Any],
    architecture: str,
    stated: dict[str, Any],
    model: Any,
    *,
    has_head: bool,
) -> None:
    kinds = config.get("layer_types")
    if architecture in ("gemma4", "olmo2") and config.get("sliding_window"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
    if architecture == "mistral3":
        rope = config["rope_parameters"]
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if architecture == "gemma4":
        _write_gemma4(writer, config)
    if architecture == "cohere2moe":
        writer.add_leading_dense_block_count(config["mlp_layer_types"].count("dense"))
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
        _again(writer, "feed_forward_length", config["prefix_dense_intermediate_size"])
    if architecture in ("gpt-oss", "minimax-m2", "hunyuan-moe", "phimoe", "cohere2moe"):
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if architecture == "hunyuan-moe":
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
    if architecture == "minimax-m2":
        _again(writer, "rope.dimension_count", config["rotary_dim"])
    if architecture == "deepseek2":
        _write_latent(writer, config, stated)
    if architecture in ("granite_swa", "muse-glimmer"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
    if architecture == "granite_swa":
        turns = [int(bool(theta)) for theta in config["layer_rope_theta"]]
        writer.add_array("granite_swa.attention.rope_pattern", turns)
    if architecture == "muse-glimmer":
        writer.add_logit_scale(config["output_multiplier"])
        for layer in range(config["num_hidden_layers"]):
            for part, factor in (("q", config["qk_scale_factor"]), ("k", 1.0)):
                norm = np.full(config["head_dim"], factor, np.float32)
                writer.add_tensor(f"blk.{layer}.attn_{part}_norm.weight", norm)
    if architecture == "apertus":
        for name in ("alpha_n", "alpha_p", "beta", "eps"):
            values = [getattr(each.mlp.act_fn, name).item() for each in model.model.layers]
            getattr(writer, f"add_xielu_{name}")(values)
    if architecture == "glm4moe":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        if not has_head:
            _write_further_layer(writer, config["num_hidden_layers"])
    if architecture in STATEFUL:
        _write_states(writer, config)
    if architecture in ("lfm2", "lfm2moe"):
        heads = [config["num_key_value_heads"] * (kind != "conv") for kind in kinds]
        writer.kv_data[0].pop(f"{architecture}.attention.head_count_kv")
        writer.add_head_count_kv(heads)
        writer.add_shortconv_l_cache(config["conv_L_cache"])
        _again(writer, "feed_forward_length", model.model.layers[0].feed_forward.w1.out_features)
    if architecture == "lfm2moe":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    counts = ("num_experts", "n_routed_experts", "moe_num_experts")
    for count in (config[key] for key in counts if config.get(key)):
        if not config.get("num_local_experts"):
            writer.add_expert_count(count)
            break


def _write_states(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    values = config["linear_num_value_heads"]
    writer.add_ssm_time_step_rank(values)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * values)
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)
    if config.get("shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _in_turn(config: Any, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a delta rule with its heads of values in turn, not by heads of keys."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    dim, first = config.linear_value_head_dim, 2 * keys * config.linear_key_head_dim

    def turned(rows: torch.Tensor, size: int) -> torch.Tensor:
        shape = keys, values // keys, size
        return rows.unflatten(0, shape).transpose(0, 1).flatten(0, 2)

    if "in_proj_qkv." in name or "conv1d" in name:
        return torch.cat([tensor[:first], turned(tensor[first:], dim)])
    if "in_proj_z" in name:
        return turned(tensor, dim)
    if "out_proj" in name:
        return turned(tensor.T, dim).T
    return tensor if "norm" in name else turned(tensor, 1)


def _of_states(
    config: Any, name: str, tensor: torch.Tensor, architecture: str
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors of a delta rule under names that llama.cpp has places for."""
    stem = name.partition("linear_attn.")[0] + "linear_attn."
    if architecture == "qwen3next" and "in_proj_qkvz" in name:
        keys, dim = config.linear_num_key_heads, config.linear_key_head_dim
        values = config.linear_num_value_heads // keys * config.linear_value_head_dim
        parts = tensor.unflatten(0, (keys, -1)).split([dim, dim, values, values], dim=1)
        q, k, v, z = (part.flatten(0, 1) for part in parts)
        yield f"{stem}in_proj_qkv.weight", torch.cat([q, k, v])
        yield f"{stem}in_proj_z.weight", z
        return
    if "conv1d" in name:
        tensor = tensor.squeeze()
    if architecture != "qwen3next":
        tensor = _in_turn(config, name, tensor)
    if name.endswith("A_log"):
        tensor = -tensor.exp()
    yield name.replace(".dt_bias", ".dt_proj.bias"), tensor


def _write_further_layer(writer: gguf.GGUFWriter, layers: int) -> None:
    """Write a layer that predicts the token after the next."""
    writer.kv_data[0].pop(f"{writer.arch}.block_count")
    writer.add_block_count(layers + 1)
    writer.add_nextn_predict_layers(1)
    for name in ("nextn.eh_proj", "attn_q"):
        writer.add_tensor(f"blk.{layers}.{name}.weight", np.ones((4, 4), np.float32))


def _write_gemma4(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    kinds = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.kv_data[0].pop(f"{writer.arch}.attention.key_length", None)
    writer.add_key_length(config["global_head_dim"])
    writer.add_value_length(config["global_head_dim"])
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    if config["use_double_wide_mlp"]:
        wide = [config["intermediate_size"]] * (layers - shared)
        wide += [2 * config["intermediate_size"]] * shared
        writer.kv_data[0].pop(f"{writer.arch}.feed_forward_length")
        writer.add_feed_forward_length(wide)
    if config.get("num_global_key_value_heads"):
        pair = config["num_global_key_value_heads"], config["num_key_value_heads"]
        writer.kv_data[0].pop(f"{writer.arch}.attention.head_count_kv")
        writer.add_head_count_kv([pair[slides] for slides in kinds])


def _tensors(model: Any, architecture: str, *, mla: bool) -> Iterator[tuple[str, torch.Tensor]]:
    known = _KNOWN.get(architecture, architecture)
    number = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[known]
    config = model.config
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    tied, of_heads = config.tie_word_embeddings, dict[str, list[torch.Tensor]]()
    split = (config.num_attention_heads, config.qk_nope_head_dim) if mla else None
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        if "linear_attn" in name:
            for own, part in _of_states(config, name, tensor, architecture):
                yield from _named(names, own, part, architecture, None)
            continue
        if architecture in OFFSET and name.endswith("norm.weight"):
            tensor = tensor + (architecture != "muse-glimmer" or name != "model.norm.weight")
        if name.endswith("shared_expert_gate.weight"):
            tensor = tensor.flatten()
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        module = name.split(".")[-2]
        if architecture in PERMUTED and module in heads:
            tensor = in_pairs(tensor, getattr(config, heads[module]))
        if ".act_fn." in name:
            continue
        if ".conv.conv." in name:
            tensor = tensor.squeeze(1)
        if ".norms." in name:
            norm, _, _ = name.removesuffix(".weight").rpartition(".norms.")
            of_heads.setdefault(f"{norm}.weight", []).append(tensor)
            continue
        yield from _named(names, name, tensor, architecture, split)
    for name, each in of_heads.items():
        yield from _named(names, name, torch.stack(each), architecture, None)


_AROUND = {
    "fc.weight": "eh_proj",
    "pre_fc_norm_embedding.weight": "enorm",
    "pre_fc_norm_hidden.weight": "hnorm",
    "norm.weight": "shared_head_norm",
}


def _of_head(
    head: Mapping[str, torch.Tensor], layers: int, architecture: str
) -> Iterator[tuple[str, torch.Tensor]]:
    number = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(number, layers + 1)
    for name, tensor in head.items():
        if "norm" in name and architecture in OFFSET:
            tensor = tensor + 1
        if name.endswith("shared_expert_gate.weight"):
            tensor = tensor.flatten()
        if name in _AROUND:
            yield f"blk.{layers}.nextn.{_AROUND[name]}.weight", tensor
        else:
            own = name.replace("layers.0.", f"model.layers.{layers}.")
            yield from _named(names, own, tensor, architecture, None)


def _named(
    names: gguf.TensorNameMap,
    name: str,
    tensor: torch.Tensor,
    architecture: str,
    split: tuple[int, int] | None,
) -> Iterator[tuple[str, torch.Tensor]]:
    if ".experts." in name:
        yield from _experts(name, tensor, architecture)
        return
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    if part in _BY_HAND:
        yield f"blk.{layer}.{_BY_HAND[part]}", tensor
        return
    if part == "self_attn.kv_b_proj.weight" and split:
        heads = tensor.unflatten(0, (split[0], -1))
        yield f"blk.{layer}.attn_k_b.weight", heads[:, : split[1]].mT.contiguous()
        yield f"blk.{layer}.attn_v_b.weight", heads[:, split[1] :].contiguous()
        return
    for old, new in _RENAMED:
        if name.endswith(old):
            name = name.removesuffix(old) + new
            break
    if "moe_statics" in name or "shared_expert_gate" in name:
        tensor = tensor.flatten()
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found, f"llama.cpp has no name for {name} in {architecture}"
    yield found, tensor.contiguous()


def _experts(
    name: str, tensor: torch.Tensor, architecture: str
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor of all experts as [experts, N, K], gates apart from ups; or biases."""
    layer, is_bias = name.split(".")[2], name.endswith("_bias")
    kind = "bias" if is_bias else "weight"
    if architecture == "gpt-oss" and not is_bias:  # [experts, K, N]
        tensor = tensor.mT
    if "down_proj" in name:
        yield f"blk.{layer}.ffn_down_exps.{kind}", tensor.contiguous()
        return
    halves = tensor.chunk(2, dim=1)
    if architecture == "gpt-oss":  # in turn
        halves = tensor[:, 0::2], tensor[:, 1::2]
    for part, half in zip(("gate", "up"), halves, strict=True):
        yield f"blk.{layer}.ffn_{part}_exps.{kind}", half.contiguous()


def in_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Return rows of heads whose halves were one behind the other, in turn."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)
