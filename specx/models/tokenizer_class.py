"""The class of transformers that reads a folder's tokenizer.

Some of them take only the tokens of ``tokenizer.json`` and put parts of their own around
(``tokenizer_parts.py``). Which class it is follows from what the folder calls it and from what
transformers has noted about the family of the model: some families name the wrong one.
"""

from collections.abc import Callable, Mapping
from typing import Any

WHOLE = "TokenizersBackend"  # takes the file as it is
TEKKEN = "MistralCommonBackend"  # of a package that specx does not need
_ALIASES = {"PreTrainedTokenizer": WHOLE}
# Which class transformers registers for a family; none for those of the last line.
_REGISTERED = {
    "GemmaTokenizer": "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text",
    "CohereTokenizer": "cohere cohere2",
    "Qwen2Tokenizer": "qwen2 qwen2_moe qwen2_5_vl qwen3 qwen3_moe qwen3_next qwen3_vl",
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
    "GPT2Tokenizer": "gpt2 gptj gpt_neo phi starcoder2 opt",
    "GPTNeoXTokenizer": "gpt_neox olmo olmoe",
    WHOLE: "glm glm4 glm4_moe granite granitemoe granitemoehybrid granitemoeshared olmo2 olmo3 "
    "gpt_bigcode stablelm persimmon phi3 phimoe ernie4_5 ernie4_5_moe nemotron "
    "minimax_m2",
    TEKKEN: "mistral mistral3 mixtral ministral ministral3",
    "": "llama smollm3 exaone4 seed_oss arcee apertus hunyuan_v1_dense hunyuan_v1_moe gpt_oss "
    "deepseek_v2 deepseek_v3 gemma4 gemma4_text helium falcon falcon_h1 bloom lfm2 bitnet "
    "diffllama cwm vaultgemma dots1 nanochat qwen2_5_vl_text qwen3_vl_text",
}
FAMILIES = {each: name for name, families in _REGISTERED.items() for each in families.split()}
# Families whose folders name a class that is not to be believed.
MISNAMED = {
    *("qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "phi3", "phimoe", "ernie4_5"),
    *("ernie4_5_moe", "minimax_m2", "nemotron"),
}


def tokenizer_class(
    config: Mapping[str, Any], settings: Mapping[str, Any], is_byte_level: Callable[[], bool]
) -> str | None:
    """Return the name of the class, without ``Fast``; None: only transformers can tell.

    ``config``: of the model; ``settings``: ``tokenizer_config.json``; ``is_byte_level``: whether
    ``tokenizer.json`` works on bytes, which takes a while to see.
    """
    family, stated = config.get("model_type"), _stated(config, settings)
    if family not in FAMILIES or stated is None or settings.get("auto_map"):
        return None
    registered, misnamed = FAMILIES[family], family in MISNAMED
    if stated == "LlamaTokenizer" and registered != TEKKEN and not misnamed and is_byte_level():
        return WHOLE
    if not stated:
        return WHOLE if registered in ("", TEKKEN) else registered
    if registered in (WHOLE, TEKKEN):
        return WHOLE
    return registered if misnamed else stated


def _stated(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the class that a folder names, "" for none, None if it is no name."""
    stated = settings.get("tokenizer_class") or config.get("tokenizer_class") or ""
    if not isinstance(stated, str):
        return None
    name = stated.removesuffix("Fast")
    return _ALIASES.get(name, name)
