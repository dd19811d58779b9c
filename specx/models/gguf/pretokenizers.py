"""Pre-tokenization of byte-level tokenizers: texts cut into words, by llama.cpp's names for it.

An expression is that of the models' own ``tokenizer.json``.
"""

from dataclasses import dataclass

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_QWEN3_5 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SLASHED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT_4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}" + _SLASHED
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}" + _SLASHED
)
_SEED = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ASCII_MARKS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    rf"{_ASCII_MARKS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_DIGIT = r"\p{N}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT = (r"[\p{P}$+<=>^~|`]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")


@dataclass(frozen=True, kw_only=True)
class PreTokenization:
    """A way to cut texts.

    ``patterns``: expressions, one after the other, whose matches are words of their own. ``gpt2``:
    then as GPT-2 does. ``whole_first``: a word that is a token is not merged from parts. ``nfc``:
    texts are normalized. ``bos``, ``eos``: texts begin, end with a token where a file does not say.
    """

    patterns: tuple[str, ...] = ()
    gpt2: bool = False
    whole_first: bool = False
    nfc: bool = False
    bos: bool = False
    eos: bool = False


_OF_GPT2 = PreTokenization(gpt2=True)
_DIGITS_APART = PreTokenization(patterns=(_DIGIT,), gpt2=True)
_OF_LLAMA3 = PreTokenization(patterns=(_LLAMA3,), whole_first=True, bos=True)
_CL100K = PreTokenization(patterns=(_LLAMA3,))
_OF_QWEN2 = PreTokenization(patterns=(_QWEN2,), nfc=True)
PRE_TOKENIZERS = {
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"), _OF_LLAMA3),
    **dict.fromkeys(("midm-2.0", "lfm2"), _OF_LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _CL100K),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _OF_QWEN2),
    **dict.fromkeys(("hunyuan", "stablelm2"), PreTokenization(patterns=(_QWEN2,))),
    "default": PreTokenization(patterns=_DEFAULT),
    "qwen35": PreTokenization(patterns=(_QWEN3_5,), nfc=True),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone"), _DIGITS_APART),
    "command-r": PreTokenization(patterns=(_DIGIT,), gpt2=True, nfc=True),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion"), _OF_GPT2),
    **dict.fromkeys(("gpt-4o", "llama4"), PreTokenization(patterns=(_GPT_4O,))),
    "tekken": PreTokenization(patterns=(_TEKKEN,), whole_first=True, bos=True),
    "seed-coder": PreTokenization(patterns=(_SEED,)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreTokenization(patterns=_DEEPSEEK3)),
    "deepseek-coder": PreTokenization(patterns=_DEEPSEEK_CODER),
}
