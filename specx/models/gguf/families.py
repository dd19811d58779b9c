"""From the metadata of a file to the config that transformers would have for the same model.

llama.cpp's names of architectures and keys are those of its converter. What a family there takes
for granted, such as which layers have windows, is in ``particulars``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specx.errors import ModelError
from specx.models.gguf import particulars as own
from specx.models.gguf.container import PackedTensor
from specx.models.gguf.metadata import Metadata
from specx.models.gguf.particulars import Config, Tensors
from specx.models.gguf.rotary import rotary

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_AROUND = {  # norms before and behind
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_BEHIND = {"post_attention_norm": "post_attention_layernorm"}  # and no other in front of the MLP
_PER_LAYER = {
    "layer_output_scale": "layer_scalar",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}


@dataclass(frozen=True, kw_only=True)
class GgufFamily:
    """An architecture of llama.cpp and what transformers calls it.

    ``more``: the keys of its config beside those that all have. ``layer``: names of a layer's
    tensors unlike llama's. ``permuted``: rows of queries and keys stand in pairs for the rotation.
    ``norm_offset``: what norms have more than in transformers. ``act``: the activation's key and
    name. ``epsilon``: the key of the norms' epsilon. ``tied``: it never has an output matrix of its
    own.
    """

    model_type: str
    architecture: str
    more: Callable[[Metadata, Tensors], Config] = own.nothing
    layer: Mapping[str, str] = field(default_factory=dict)
    permuted: bool = False
    norm_offset: float = 0.0
    act: tuple[str, str] = ("hidden_act", "silu")
    epsilon: str = "rms_norm_eps"
    tied: bool = False

    def names(self) -> dict[str, str]:
        """Return transformers' names of a layer's tensors, those of single experts left out."""
        return {**_LAYER, **self.layer}


def family_of(keys: Metadata, label: str) -> GgufFamily:
    """Return the family of a file. Raises ModelError for one that is not a supported model."""
    kind, name = keys.text("general.type", "model"), keys.architecture
    if name == "clip":
        raise ModelError(
            f"{label} holds the part of a model that reads images; give the file of the language "
            "model beside it."
        )
    if kind != "model":
        raise ModelError(
            f"{label} holds no language model but {kind!r} (general.type); give the model's file."
        )
    if name not in FAMILIES:
        raise ModelError(
            f"{label} has the architecture {name!r}, which specx does not read from GGUF; it "
            f"reads {', '.join(sorted(FAMILIES))}."
        )
    if name == "llama" and keys.count(".expert_count", 0):
        return _MIXTRAL
    if name == "olmo2" and ".attention.sliding_window" in keys:
        return _OLMO3
    return FAMILIES[name]


def config_of(keys: Metadata, family: GgufFamily, tensors: Tensors) -> Config:
    """Return the contents of a config.json. Raises ModelError as ``Metadata`` does."""
    config = _sizes(keys, tensors)
    rms = family.epsilon == "rms_norm_eps"
    epsilon = ".attention.layer_norm_rms_epsilon" if rms else ".attention.layer_norm_epsilon"
    more = family.more(keys, tensors)
    heads = config["num_attention_heads"]
    if "num_key_value_heads" not in more:
        config["num_key_value_heads"] = keys.count(".attention.head_count_kv", heads)
    if "intermediate_size" not in more:
        config["intermediate_size"] = keys.count(".feed_forward_length")
    if "head_dim" not in more:
        config["head_dim"] = own.head_dim(keys)
    if "rope_parameters" not in more:
        config["rope_parameters"] = rotary(keys, tensors, config["head_dim"])
    config |= {
        "model_type": family.model_type,
        "architectures": [family.architecture],
        "tie_word_embeddings": family.tied or "output.weight" not in tensors,
        family.epsilon: keys.number(epsilon),
        family.act[0]: family.act[1],
        **_ends(keys),
        **more,
    }
    groups = config["num_key_value_heads"]
    if not groups or heads % groups:
        keys.refuse(f"{heads} heads of queries share {groups} heads of keys")
    return config


def _sizes(keys: Metadata, tensors: Tensors) -> Config:
    embeddings = _embeddings(keys, tensors)
    config = {
        "vocab_size": embeddings.shape[0],
        "hidden_size": keys.count(".embedding_length"),
        "num_hidden_layers": keys.count(".block_count"),
        "num_attention_heads": keys.count(".attention.head_count"),
        "max_position_embeddings": keys.count(".context_length"),
    }
    for key, value in config.items():
        if not value:
            keys.refuse(f"the model has a {key} of 0")
    if embeddings.shape[1] != config["hidden_size"]:
        keys.refuse(
            f"embedding_length is {config['hidden_size']}, and the embeddings have "
            f"{embeddings.shape[1]} columns"
        )
    if config["num_hidden_layers"] > len(tensors):
        keys.refuse(
            f"there are {config['num_hidden_layers']} layers and {len(tensors)} tensors in all"
        )
    return config


def _embeddings(keys: Metadata, tensors: Tensors) -> PackedTensor:
    found = tensors.get("token_embd.weight")
    if found is None:
        keys.refuse("the tensor token_embd.weight is missing")
    if len(found.shape) != 2:
        keys.refuse(f"the tensor token_embd.weight has {len(found.shape)} dimensions")
    return found


def _ends(keys: Metadata) -> Config:
    """Return the ids of the tokens that begin, end and fill up a text."""
    ids = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
    found = {ours: f"tokenizer.ggml.{theirs}_token_id" for theirs, ours in ids.items()}
    return {ours: keys.count(key) for ours, key in found.items() if key in keys}


def _family(model_type: str, architecture: str, **kind: object) -> GgufFamily:
    whole = f"{architecture}ForCausalLM"
    return GgufFamily(model_type=model_type, architecture=whole, **kind)  # type: ignore[arg-type]


_GELU = ("hidden_activation", "gelu_pytorch_tanh")
_GEMMA = {"norm_offset": 1.0, "act": _GELU}
_FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_MIXTRAL = _family(
    "mixtral",
    "Mixtral",
    more=own.mixtral,
    permuted=True,
    layer={"ffn_gate_inp": "block_sparse_moe.gate"},
)
_ROUTER = {"ffn_gate_inp": "mlp.gate"}
_SHARED = {
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_OLMO3 = _family("olmo3", "Olmo3", more=own.olmo3, layer=_AROUND)
FAMILIES = {
    "llama": _family("llama", "Llama", more=own.llama, permuted=True),
    "mistral3": _family("ministral3", "Ministral3", more=own.ministral3, permuted=True),
    "qwen2": _family("qwen2", "Qwen2"),
    "qwen3": _family("qwen3", "Qwen3", more=own.attention_bias),
    "qwen3moe": _family("qwen3_moe", "Qwen3Moe", more=own.qwen3_moe, layer=_ROUTER),
    "olmoe": _family("olmoe", "Olmoe", more=own.olmoe, layer=_ROUTER),
    "glm4moe": _family(
        "glm4_moe",
        "Glm4Moe",
        more=own.glm4_moe,
        layer={
            **{**_BEHIND, **_ROUTER, **_SHARED},
            "exp_probs_b": "mlp.gate.e_score_correction_bias",
        },
    ),
    "ernie4_5-moe": _family(
        "ernie4_5_moe",
        "Ernie4_5_Moe",
        more=own.ernie_moe,
        layer={
            **{**_ROUTER, **_SHARED},
            "exp_probs_b": "mlp.moe_statics.e_score_correction_bias",
        },
    ),
    "gemma": _family("gemma", "Gemma", tied=True, **_GEMMA),
    "gemma2": _family("gemma2", "Gemma2", more=own.gemma2, layer=_AROUND, tied=True, **_GEMMA),
    "gemma3": _family("gemma3_text", "Gemma3", more=own.gemma3, layer=_AROUND, **_GEMMA),
    "gemma4": _family(
        "gemma4_text", "Gemma4", more=own.gemma4, layer={**_AROUND, **_PER_LAYER}, act=_GELU
    ),
    "phi3": _family("phi3", "Phi3", more=own.phi3, layer=_FUSED),
    "smollm3": _family("smollm3", "SmolLM3", more=own.smollm3, permuted=True),
    "gpt-oss": _family(
        "gpt_oss",
        "GptOss",
        more=own.gpt_oss,
        layer={**_BEHIND, "attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router"},
    ),
    "granite": _family("granite", "Granite", more=own.granite, permuted=True),
    "granitemoe": _family(
        "granitemoe",
        "GraniteMoe",
        more=own.granite_moe,
        permuted=True,
        layer={"ffn_gate_inp": "block_sparse_moe.router.layer"},
    ),
    "command-r": _family("cohere", "Cohere", more=own.cohere, epsilon="layer_norm_eps", tied=True),
    "cohere2": _family("cohere2", "Cohere2", more=own.cohere2, epsilon="layer_norm_eps", tied=True),
    "olmo2": _family("olmo2", "Olmo2", more=own.attention_bias, layer=_AROUND),
    "glm4": _family(
        "glm4",
        "Glm4",
        more=own.attention_bias,
        layer={
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
    ),
    "ernie4_5": _family("ernie4_5", "Ernie4_5", more=own.ernie),
    "seed_oss": _family("seed_oss", "SeedOss", more=own.attention_bias, layer=_BEHIND),
    "starcoder2": _family(
        "starcoder2",
        "Starcoder2",
        more=own.starcoder2,
        layer={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        epsilon="norm_epsilon",
        act=("hidden_act", "gelu_pytorch_tanh"),
    ),
    "arcee": _family("arcee", "Arcee", more=own.llama, permuted=True, act=("hidden_act", "relu2")),
    "hunyuan-dense": _family(
        "hunyuan_v1_dense",
        "HunYuanDenseV1",
        more=own.attention_bias,
        layer={
            "attn_q_norm": "self_attn.query_layernorm",
            "attn_k_norm": "self_attn.key_layernorm",
        },
    ),
    "exaone4": _family("exaone4", "Exaone4", more=own.exaone4, layer=_AROUND),
}
