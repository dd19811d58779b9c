"""Folders with small tokenizers, laid out as published families lay out theirs."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.models.texts import PROSE

_LETTERS = r"\s+\p{L}+|\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ROWS = 700  # tokens


def write(folder: Path, family: str) -> Path:
    """Write the tokenizer of a family (of ``FAMILIES`` or ``LEFT``) and a config, no weights."""
    (FAMILIES | LEFT)[family](folder)
    return folder


def _save(
    folder: Path,
    tokenizer: Tokenizer | None,
    model_type: str,
    settings: dict[str, Any] | None,
    **files: Any,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    files["config"] = {"model_type": model_type}
    if settings is not None:
        files["tokenizer_config"] = settings
    for name, contents in files.items():
        (folder / f"{name}.json").write_text(json.dumps(contents), encoding="utf-8")


def _decoder_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """What tokenizer_config.json says of added tokens."""
    return {
        str(i): {
            key: getattr(token, key)
            for key in ("content", "lstrip", "rstrip", "normalized", "single_word", "special")
        }
        for i, token in tokenizer.get_added_tokens_decoder().items()
    }


# ---------------------------------------------------------------- byte-level BPE


@cache
def _byte_level() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=_ROWS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(PROSE, trainer)
    return tokenizer.to_str()


def byte_level(**model: Any) -> Tokenizer:
    state = json.loads(_byte_level())
    state["model"] |= model
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pattern(tokenizer: Tokenizer, pattern: str = _LETTERS) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _special(*texts: str, **flags: bool) -> list[AddedToken]:
    return [AddedToken(text, special=True, normalized=False, **flags) for text in texts]


def _begins_with(tokenizer: Tokenizer, token: str) -> None:
    ids = [(token, tokenizer.token_to_id(token))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=ids
    )


def _llama3(folder: Path) -> None:
    tokenizer = byte_level(ignore_merges=True)
    _pattern(tokenizer)
    tokenizer.add_special_tokens(
        _special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>")
    )
    _begins_with(tokenizer, "<|begin_of_text|>")
    settings = {
        "added_tokens_decoder": _decoder_of(tokenizer),
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|eot_id|>",
        "clean_up_tokenization_spaces": True,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    bos = {"content": "<|begin_of_text|>", "lstrip": False, "normalized": False, "rstrip": False}
    _save(folder, tokenizer, "llama", settings, special_tokens_map={"bos_token": bos})


def _qwen(folder: Path, model_type: str = "qwen3", name: str = "Qwen2Tokenizer") -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    _pattern(tokenizer)
    tokenizer.add_special_tokens(_special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    plain = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": _decoder_of(tokenizer),
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|new|>"],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": name,
        "unk_token": None,
    }
    _save(folder, tokenizer, model_type, settings)


def _from_vocabulary(folder: Path, model_type: str, settings: dict[str, Any], **files: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    byte_level().model.save(str(folder))
    _save(folder, None, model_type, settings, **files)


def _qwen_vocabulary(folder: Path) -> None:
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    added = {"<|im_start|>": _ROWS + 1, "<|im_end|>": _ROWS, "<tool>": _ROWS + 2}
    names = {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    _from_vocabulary(folder, "qwen2", settings, added_tokens=added, special_tokens_map=names)


def _smollm2(folder: Path) -> None:
    tokenizer = byte_level()
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.add_special_tokens(
        _special("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>")
    )
    settings = {
        "added_tokens_decoder": _decoder_of(tokenizer),
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": "<|endoftext|>",
        "vocab_size": 49152,
    }
    _save(folder, tokenizer, "llama", settings)


def _olmo(folder: Path) -> None:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(_special("<|endoftext|>", "<|padding|>"))
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (8, 4, 2)])
    _begins_with(tokenizer, "<|endoftext|>")
    settings = {"tokenizer_class": "GPTNeoXTokenizerFast", "add_bos_token": True}
    _save(folder, tokenizer, "olmo", settings)


def _cohere(folder: Path) -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    named = ("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>")
    tokenizer.add_special_tokens(_special(*named))
    tokenizer.add_tokens(_special("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"))
    _begins_with(tokenizer, "<BOS_TOKEN>")
    settings = {
        "added_tokens_decoder": _decoder_of(tokenizer),
        "add_bos_token": True,
        "bos_token": "<BOS_TOKEN>",
        "eos_token": "<|END_OF_TURN_TOKEN|>",
        "legacy": True,
        "merges_file": None,
        "tokenizer_class": "CohereTokenizer",
    }
    _save(folder, tokenizer, "cohere2", settings)


def _deepseek(folder: Path) -> None:
    tokenizer = byte_level()
    _pattern(tokenizer)
    tokenizer.add_special_tokens(_special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"))
    tokenizer.add_tokens([AddedToken("<｜User｜>", normalized=False)])
    _begins_with(tokenizer, "<｜begin▁of▁sentence｜>")
    marked = {"__type": "AddedToken", "lstrip": False, "normalized": True, "rstrip": False}
    settings = {
        "bos_token": marked | {"content": "<｜begin▁of▁sentence｜>", "single_word": False},
        "eos_token": marked | {"content": "<｜end▁of▁sentence｜>", "single_word": False},
        "tokenizer_class": "LlamaTokenizerFast",
        "legacy": True,
        "unk_token": None,
    }
    _save(folder, tokenizer, "llama", settings)


def _gpt_oss(folder: Path) -> None:
    """With what few folders have: names of its own, no class, texts cut and filled up."""
    tokenizer = byte_level()
    _pattern(tokenizer)
    tokenizer.add_special_tokens(
        _special("<|startoftext|>", "<|return|>", "<|channel|>", "<|fill|>")
    )
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(
        length=20, pad_token="<|fill|>", pad_id=tokenizer.token_to_id("<|fill|>")
    )
    settings = {
        "bos_token": "<|startoftext|>",
        "eos_token": "<|return|>",
        "image_token": "<|image|>",
        "extra_special_tokens": {"boi_token": "<|boi|>"},
        "split_special_tokens": True,
    }
    _save(folder, tokenizer, "gpt_oss", settings)


# ---------------------------------------------------------------- SentencePiece with byte fallback


def sentencepiece(*special: str, unk: str = "<unk>") -> Tokenizer:
    """A BPE over letters, whose rows begin with ``special`` and a token for each byte."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=_ROWS // 2, show_progress=False, limit_alphabet=120)
    trained.train_from_iterator(PROSE, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    rows = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"], "▁▁", "▁▁▁▁"]
    merges += [("▁", "▁"), ("▁▁", "▁▁")]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(rows))}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=unk, fuse_unk=True, byte_fallback=True)
    )
    tokenizer.add_special_tokens(_special(*special))
    return tokenizer


def _prepended(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )


def _llama2(folder: Path, model_type: str = "llama", **settings: Any) -> None:
    tokenizer = sentencepiece("<unk>", "<s>", "</s>")
    _prepended(tokenizer)
    _begins_with(tokenizer, "<s>")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    names = {
        f"{key}_token": {"content": text, **flags}
        for key, text in (("bos", "<s>"), ("eos", "</s>"))
    }
    marked = {key: {"__type": "AddedToken", **value} for key, value in names.items()}
    usual = {
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "pad_token": None,
        "sp_model_kwargs": {},
        "tokenizer_class": "LlamaTokenizer",
    }
    usual["added_tokens_decoder"] = _decoder_of(tokenizer)
    _save(folder, tokenizer, model_type, usual | marked | settings, special_tokens_map=names)


def _llama2_legacy(folder: Path) -> None:
    _llama2(folder, legacy=True, clean_up_tokenization_spaces=True, add_prefix_space=None)


def _llama2_without_space(folder: Path) -> None:
    _llama2(folder, legacy=False, add_prefix_space=False)


def _mistral(folder: Path) -> None:
    tokenizer = sentencepiece("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    _prepended(tokenizer)
    tokenizer.normalizer = None
    _begins_with(tokenizer, "<s>")
    settings = {
        "added_tokens_decoder": _decoder_of(tokenizer),
        "additional_special_tokens": [],
        "bos_token": "<s>",
        "eos_token": "</s>",
        "legacy": False,
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
    }
    _save(folder, tokenizer, "mistral", settings)


def _phi3(folder: Path) -> None:
    tokenizer = sentencepiece("<unk>", "<s>", "</s>")
    _prepended(tokenizer)
    tokenizer.add_special_tokens(_special("<|endoftext|>"))
    tokenizer.add_special_tokens(_special("<|assistant|>", "<|user|>", "<|end|>", rstrip=True))
    tokenizer.add_tokens(
        [AddedToken("<|left|>", lstrip=True), AddedToken("word", single_word=True)]
    )
    _begins_with(tokenizer, "<s>")
    settings = {
        "added_tokens_decoder": _decoder_of(tokenizer),
        "bos_token": "<s>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "padding_side": "left",
        "tokenizer_class": "LlamaTokenizerFast",
        "unk_token": "<unk>",
    }
    _save(folder, tokenizer, "phi3", settings)


def _gemma(folder: Path) -> None:
    tokenizer = sentencepiece("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in (1, 2, 3)])
    tokenizer.add_tokens([AddedToken("▁" * n, normalized=False) for n in (2, 4)])
    tokenizer.add_special_tokens(_special("<start_of_turn>", "<end_of_turn>"))
    _begins_with(tokenizer, "<bos>")
    settings = {
        "add_bos_token": True,
        "added_tokens_decoder": _decoder_of(tokenizer),
        "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "spaces_between_special_tokens": False,
        "tokenizer_class": "GemmaTokenizer",
        "unk_token": "<unk>",
    }
    _save(folder, tokenizer, "gemma3_text", settings)


# ---------------------------------------------------------------- Unigram


def unigram(*special: str, byte_fallback: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=_ROWS // 2, special_tokens=list(special), unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(PROSE * 3, trainer)
    state = json.loads(tokenizer.to_str())
    if byte_fallback:
        state["model"]["byte_fallback"] = True
        state["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    return Tokenizer.from_str(json.dumps(state))


def _unigram(folder: Path) -> None:
    tokenizer = unigram("<unk>", "<s>", "</s>", byte_fallback=True)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    )
    _begins_with(tokenizer, "<s>")
    settings = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": True,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }
    _save(folder, tokenizer, "llama", settings)


FAMILIES: dict[str, Callable[[Path], None]] = {
    "llama3": _llama3,
    "qwen3": _qwen,
    "qwen3.5": lambda folder: _qwen(folder, "qwen3_5_text", "Qwen3_5Tokenizer"),
    "qwen2 named wrongly": lambda folder: _qwen(folder, "qwen2", "LlamaTokenizerFast"),
    "smollm2": _smollm2,
    "granite": lambda folder: _qwen(folder, "granite", "GPT2Tokenizer"),
    "starcoder2": lambda folder: _qwen(folder, "starcoder2", "GPT2TokenizerFast"),
    "olmo": _olmo,
    "deepseek": _deepseek,
    "gpt-oss": _gpt_oss,
    "llama2": _llama2,
    "llama2 legacy": _llama2_legacy,
    "llama2 without a space": _llama2_without_space,
    "mistral": _mistral,
    "phi3": _phi3,
    "gemma": _gemma,
    "unigram": _unigram,
}
# What is left to transformers.
LEFT: dict[str, Callable[[Path], None]] = {"vocabulary": _qwen_vocabulary, "cohere": _cohere}
