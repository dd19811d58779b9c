"""Families of models: from a config to a decoder and to the names of its weights."""

from collections.abc import Mapping
from typing import Any

from specx.errors import ModelError
from specx.models.families import corrected_experts, experts, gemma, llama, normed, text_part
from specx.models.families.config import Config
from specx.models.families.family import Architecture, Family
from specx.models.families.text_part import text_config

_LLAMA = llama.SIZES | {"attention_bias": False, "mlp_bias": False, "head_dim": None}
_FAMILIES = (
    Family(model_type="llama", name="Llama", defaults=_LLAMA, read=llama.llama),
    Family(
        model_type="mistral",
        name="Mistral, Mistral Small 3",
        defaults=llama.MISTRAL,
        read=llama.mistral,
    ),
    Family(
        model_type="ministral",
        name="Ministral",
        defaults=llama.MISTRAL | {"layer_types": None},
        read=llama.ministral,
    ),
    Family(
        model_type="ministral3",
        name="Ministral 3",
        defaults=llama.MISTRAL
        | {
            "vocab_size": 131_072,
            "num_hidden_layers": 34,
            "head_dim": 128,
            "max_position_embeddings": 262_144,
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
            "rope_parameters": llama.MINISTRAL3_ROPE,
        },
        read=llama.ministral3,
    ),
    Family(model_type="qwen2", name="Qwen2, Qwen2.5", defaults=llama.QWEN, read=llama.qwen2),
    Family(
        model_type="qwen3",
        name="Qwen3",
        defaults=llama.QWEN | {"head_dim": 128, "attention_bias": False},
        read=llama.qwen3,
    ),
    Family(
        model_type="qwen2_5_vl_text",
        name="Qwen2.5-VL, its text part",
        defaults=text_part.QWEN2_5_VL,
        read=text_part.qwen2_5_vl,
    ),
    Family(
        model_type="qwen3_vl_text",
        name="Qwen3-VL, its text part",
        defaults=text_part.QWEN3_VL,
        read=text_part.qwen3_vl,
    ),
    Family(model_type="smollm3", name="SmolLM3", defaults=llama.SMOLLM3, read=llama.smollm3),
    Family(model_type="phi3", name="Phi-3, Phi-4", defaults=llama.PHI3, read=llama.phi3),
    Family(model_type="gemma", name="Gemma", defaults=gemma.GEMMA, read=gemma.gemma),
    Family(model_type="gemma2", name="Gemma 2", defaults=gemma.GEMMA2, read=gemma.gemma2),
    Family(model_type="gemma3_text", name="Gemma 3", defaults=gemma.GEMMA3, read=gemma.gemma3),
    Family(model_type="gemma4_text", name="Gemma 4", defaults=gemma.GEMMA4, read=gemma.gemma4),
    Family(model_type="olmo2", name="OLMo 2", defaults=normed.OLMO2, read=normed.olmo2),
    Family(model_type="olmo3", name="OLMo 3", defaults=normed.OLMO3, read=normed.olmo3),
    Family(model_type="cohere", name="Command R", defaults=normed.COHERE1, read=normed.cohere),
    Family(
        model_type="cohere2",
        name="Command R7B, Command A",
        defaults=normed.COHERE2,
        read=normed.cohere2,
    ),
    Family(
        model_type="granite",
        name="Granite 3",
        defaults=llama.GRANITE | {"mlp_bias": False},
        read=llama.granite,
    ),
    Family(
        model_type="granitemoehybrid",
        name="Granite 4, dense and without recurrence",
        defaults=llama.GRANITE
        | {
            "num_local_experts": 8,
            "shared_intermediate_size": 1024,
            "position_embedding_type": None,
            "layer_types": None,
        },
        read=llama.granite_hybrid,
    ),
    Family(model_type="glm", name="GLM", defaults=llama.GLM, read=llama.glm),
    Family(model_type="glm4", name="GLM-4", defaults=normed.GLM4, read=normed.glm4),
    Family(model_type="seed_oss", name="Seed-OSS", defaults=llama.SEED_OSS, read=llama.seed_oss),
    Family(model_type="ernie4_5", name="ERNIE 4.5", defaults=llama.ERNIE, read=llama.ernie),
    Family(model_type="helium", name="Helium", defaults=normed.HELIUM, read=normed.helium),
    Family(
        model_type="starcoder2",
        name="Starcoder 2",
        defaults=normed.STARCODER2,
        read=normed.starcoder2,
    ),
    Family(model_type="stablelm", name="StableLM", defaults=normed.STABLELM, read=normed.stablelm),
    Family(
        model_type="nemotron",
        name="Nemotron 4, Minitron",
        defaults=normed.NEMOTRON,
        read=normed.nemotron,
    ),
    Family(model_type="apertus", name="Apertus", defaults=llama.APERTUS, read=llama.apertus),
    Family(model_type="arcee", name="Arcee", defaults=llama.ARCEE, read=llama.arcee),
    Family(
        model_type="hunyuan_v1_dense",
        name="HunYuan, dense",
        defaults=llama.HUNYUAN,
        read=llama.hunyuan,
    ),
    Family(model_type="exaone4", name="EXAONE 4", defaults=normed.EXAONE4, read=normed.exaone4),
    Family(model_type="mixtral", name="Mixtral", defaults=experts.MIXTRAL, read=experts.mixtral),
    Family(
        model_type="qwen2_moe", name="Qwen2 MoE", defaults=experts.QWEN2_MOE, read=experts.qwen2_moe
    ),
    Family(
        model_type="qwen3_moe", name="Qwen3 MoE", defaults=experts.QWEN3_MOE, read=experts.qwen3_moe
    ),
    Family(model_type="olmoe", name="OLMoE", defaults=experts.OLMOE, read=experts.olmoe),
    Family(
        model_type="granitemoe",
        name="Granite MoE",
        defaults=experts.GRANITE_MOE,
        read=experts.granite_moe,
    ),
    Family(
        model_type="glm4_moe",
        name="GLM-4.5 MoE",
        defaults=corrected_experts.GLM4_MOE,
        read=corrected_experts.glm4_moe,
    ),
    Family(
        model_type="ernie4_5_moe",
        name="ERNIE 4.5 MoE",
        defaults=corrected_experts.ERNIE_MOE,
        read=corrected_experts.ernie_moe,
    ),
    Family(
        model_type="hunyuan_v1_moe",
        name="HunYuan MoE",
        defaults=experts.HUNYUAN_MOE,
        read=experts.hunyuan_moe,
    ),
    Family(
        model_type="minimax_m2",
        name="MiniMax M2",
        defaults=corrected_experts.MINIMAX_M2,
        read=corrected_experts.minimax_m2,
    ),
    Family(
        model_type="dots1",
        name="Dots 1",
        defaults=corrected_experts.DOTS1,
        read=corrected_experts.dots1,
    ),
    Family(model_type="gpt_oss", name="gpt-oss", defaults=experts.GPT_OSS, read=experts.gpt_oss),
)
FAMILIES: Mapping[str, Family] = {family.model_type: family for family in _FAMILIES}


def family_of(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a config, or None for one that has to be left to transformers."""
    return FAMILIES.get(str(text_config(config).get("model_type")))


def read_architecture(
    config: Mapping[str, Any], label: str, length: int | None = None
) -> Architecture:
    """Return the decoder that a config describes, and the names of its weights.

    ``label``: of the model, for sentences. ``length``: tokens of prompt and output, for which
    frequencies are chosen where they depend on it; None: as many as the model allows.

    Raises ModelError, by its key, for what a spec cannot express.
    """
    family = family_of(config)
    if family is None:
        kind = text_config(config).get("model_type")
        raise ModelError(f"{label} is of the type {kind}, which specx does not know.")
    return family.read(Config(text_config(config), family.defaults, label, length))
