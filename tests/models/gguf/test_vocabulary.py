"""Tokenizers through a GGUF file: ids and text are those of the tokenizer that was written."""

import io
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from specx.models.gguf.metadata import Metadata
from specx.models.gguf.vocabulary import PRE_TOKENIZERS, tokenizer_of
from specx.models.tokenizer import Tokenizer as OurTokenizer
from specx.models.tokenizer_class import PARTS
from tests.models.texts import PROSE, texts
from tests.models.tokenizer_folders import byte_level, sentencepiece

SPECIAL = ("<|begin|>", "<|end|>", "<think>")
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read(metadata: dict[str, Any], architecture: str = "llama") -> OurTokenizer:
    stated = {
        "general.architecture": architecture,
        **{f"tokenizer.{key}": value for key, value in metadata.items()},
    }
    return tokenizer_of(Metadata(stated, "The target model.gguf"), rows=99_999)


def metadata_of(tokenizer: Tokenizer, kind: str, **more: Any) -> dict[str, Any]:
    """Return what llama.cpp's converter writes of a BPE with added tokens."""
    raw, added = json.loads(tokenizer.to_str()), tokenizer.get_added_tokens_decoder()
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    kinds = [NORMAL] * len(tokens)
    for i, token in added.items():
        kinds[i] = CONTROL if token.special else USER
    return {
        "ggml.model": kind,
        "ggml.tokens": tokens,
        "ggml.token_type": kinds,
        "ggml.merges": [" ".join(merge) for merge in raw["model"]["merges"]],
        **more,
    }


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _dressed(tokenizer: Tokenizer, name: str) -> None:
    PARTS[name].dress(tokenizer, {})


def _set(words: Any, normalizer: Any = None) -> Callable[[Tokenizer], None]:
    def dress(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = words
        if normalizer is not None:
            tokenizer.normalizer = normalizer

    return dress


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
# llama.cpp's name: how published tokenizers of the kind cut, and the settings of their BPE.
BYTE_LEVEL: dict[str, tuple[Callable[[Tokenizer], None], dict[str, Any]]] = {
    "llama-bpe": (_set(_split(LLAMA3)), {"ignore_merges": True}),
    "dbrx": (_set(_split(LLAMA3)), {}),
    "qwen2": (lambda tokenizer: _dressed(tokenizer, "Qwen2Tokenizer"), {}),
    "qwen35": (lambda tokenizer: _dressed(tokenizer, "Qwen3_5Tokenizer"), {}),
    "gpt-2": (lambda tokenizer: _dressed(tokenizer, "GPT2Tokenizer"), {}),
    "command-r": (_set(DIGITS, normalizers.NFC()), {}),
    "smollm": (_set(DIGITS), {}),
}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level_tokenizers(name: str) -> None:
    dress, settings = BYTE_LEVEL[name]
    theirs = byte_level(**settings)
    dress(theirs)
    theirs.add_special_tokens([AddedToken(each, normalized=False) for each in SPECIAL[:2]])
    theirs.add_tokens([AddedToken(SPECIAL[2], normalized=False)])
    ours = read(metadata_of(theirs, "gpt2", **{"ggml.pre": name, "ggml.add_bos_token": False}))
    for text in texts(600, SPECIAL):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours(text)["input_ids"] == expected, text
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=False)
    assert ours.decode([theirs.token_to_id(SPECIAL[0])], skip_special_tokens=True) == ""
    assert ours.decode([theirs.token_to_id(SPECIAL[2])], skip_special_tokens=True) == SPECIAL[2]


@pytest.mark.parametrize(
    ("name", "text", "cuts"),
    [
        (
            "gpt-4o",
            "I'll payCamelCase 123456 €/\n\n x",
            "I'll| pay|Camel|Case| |123|456| €/\n\n| x",
        ),
        ("tekken", "I'll payCamelCase 12 €/\n\n x", "I|'ll| pay|Camel|Case| |1|2| €/\n\n| x"),
        ("seed-coder", "I'll pay 12 €\n\n x", "I|'ll| pay| |1|2| €|\n\n| x"),
        ("qwen2", "I'LL pay 12 €\n\n x", "I|'LL| pay| |1|2| €\n\n| x"),
        ("llama-bpe", "I'LL pay 1234 €\n\n x", "I|'LL| pay| |123|4| €\n\n| x"),
        ("deepseek-v3", "(pay 1234 漢字kana\n\n x", "(pay| |123|4| |漢字|kana|\n\n| x"),
        ("deepseek-coder", "pay 12, a\n\nx", "pay| |1|2|,| a|\n|\n|x"),
        ("smollm", "a 12's  b", "a| |1|2|'s| | b"),
        ("default", "it's 12345, x", "it|'|s| |123|45|,| x"),
        ("falcon", "it's 12345, x", "it|'|s| |123|45|,| x"),
        ("kimi-k2", "I'll pay漢字kana 1234 €\n/ x", "I'll| pay|漢字|kana| |123|4| €\n|/| x"),
        ("minimax-m2", "I'll 1234 €/\n x", "I'll| |123|4| €/\n| x"),
        ("deepseek-llm", "pay ა𝐀 1234, 漢字\n x", "pay| |ა|𝐀 |1234|,| |漢字|\n| x"),
        ("falcon-h1", "I'LL pay 1234\n\n x", "I|'LL| pay| |123|4|\n\n| x"),
        ("bailingmoe2", "I'LL pay 12 €\n\n\n x", "I|'LL| pay| |1|2| €\n\n\n| x"),
        ("bailingmoe", "a\n\n\n x", "a|\n\n\n| x"),
        ("exaone-moe", "to pay now 12 €\n\n x", "to pay now| |1|2| €\n|\n| x"),
        ("solar-open", "I'LL pay 12 €\n\n x", "I|'LL| pay| |1|2| €\n\n| x"),
        ("tiny_aya", "I'll pay 1234567 €/\n x", "I'll| pay| |1|234|567| €/\n| x"),
        ("afmoe", "(pay 12345678 漢字เ x", "(pay| |12|345|678| |漢字เ| x"),
        ("superbpe", "to pay 1234", "to pay |1|234"),
        ("minicpm5", "I'LL 1234 x", "I|'LL| |123|4| x"),
        ("poro-chat", "to pay, now 12.", "to| pay|,| now| 12|."),
        ("viking", "to pay, 12.", "to| pay|,| |1|2|."),
        ("jais-2", "I'LL pay 1234       x", "I|'LL| pay| |123|4|    |  | x"),
        ("youtu", "I'll pay 12。漢字ㄅ x", "I'll| pay| |1|2|。|漢字|ㄅ| x"),
        ("laguna", "pay 12 €\n\n x", "pay| |1|2| €|\n\n| x"),
        ("chameleon", "pay    12, IMGIMGAZ x", "pay|    |1|2|,| |IMGIMGAZ| x"),
        ("llada-moe", "a\n\n x", "a|\n\n| x"),
    ],
)
def test_words_are_cut_as_the_name_says(name: str, text: str, cuts: str) -> None:
    words = PRE_TOKENIZERS[name]
    parts = [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in words.patterns]
    onto_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words.gpt2)
    found = pre_tokenizers.Sequence([*parts, onto_bytes]).pre_tokenize_str(text)
    assert "|".join(text[begin:end] for _, (begin, end) in found) == cuts


@cache
def spm(kind: str, **settings: Any) -> bytes:
    """Train SentencePiece itself; ``settings`` are those of its trainer."""
    file = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE * 20),
        model_writer=file,
        model_type=kind,
        vocab_size=700,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return file.getvalue()


def metadata_of_spm(theirs: SentencePieceProcessor, kind: str, **more: Any) -> dict[str, Any]:
    kinds = []
    for i in range(theirs.vocab_size()):
        is_kind = {
            UNKNOWN: theirs.is_unknown(i),
            CONTROL: theirs.is_control(i),
            UNUSED: theirs.is_unused(i),
            BYTE: theirs.is_byte(i),
        }
        kinds.append(next((kind for kind, is_it in is_kind.items() if is_it), NORMAL))
        if theirs.id_to_piece(i).startswith("[user"):
            kinds[-1] = USER
    return {
        "ggml.model": kind,
        "ggml.tokens": [theirs.id_to_piece(i) for i in range(theirs.vocab_size())],
        "ggml.scores": [theirs.get_score(i) for i in range(theirs.vocab_size())],
        "ggml.token_type": kinds,
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
        "ggml.unknown_token_id": 0,
        **more,
    }


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_with_byte_fallback(prefix: bool) -> None:
    raw = spm(
        "bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        split_digits=True,
        user_defined_symbols="[user1]",
    )
    theirs = SentencePieceProcessor(model_proto=raw)
    ours = read(metadata_of_spm(theirs, "llama", **{"ggml.add_space_prefix": prefix}))
    plain = [text for text in texts(500, ()) if "\0" not in text and "▁" not in text and text]
    for text in plain:
        expected = theirs.encode(text)
        assert ours(text)["input_ids"] == [1, *expected], repr(text)
        assert ours.decode(expected) == theirs.decode(expected)
    assert ours.encode("[user1]", add_special_tokens=False) == [theirs.piece_to_id("[user1]")]
    assert ours.encode("</s>", add_special_tokens=False) == [2]
    assert ours.named == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_unigram() -> None:
    raw = spm("unigram", normalization_rule_name="nmt_nfkc")
    theirs = SentencePieceProcessor(model_proto=raw)
    charsmap = ModelProto.FromString(raw).normalizer_spec.precompiled_charsmap
    ours = read(
        metadata_of_spm(
            theirs,
            "t5",
            **{"ggml.precompiled_charsmap": list(charsmap)},
            **{"ggml.remove_extra_whitespaces": True},
        )
    )
    for text in PROSE:
        assert ours(text)["input_ids"] == [*theirs.encode(text), 2]


def test_gemma_4_states_its_merges() -> None:
    theirs = sentencepiece("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    theirs.normalizer = normalizers.Replace(" ", "▁")
    theirs.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    metadata = metadata_of(theirs, "gemma4", **{"ggml.bos_token_id": 2})
    metadata["ggml.token_type"][3] = UNKNOWN
    ours = read(metadata, "gemma4")
    named = read(metadata | {"ggml.model": "gpt2", "ggml.pre": "sarvam-moe"})
    for text in texts(300, ("<mask>",)):
        assert ours.encode(text) == [2, *theirs.encode(text).ids]
        assert named.encode(text) == ours.encode(text)


def test_tokens_of_phi_3_take_the_spaces_behind() -> None:
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "<|user|>",
        "▁",
        "a",
        "▁a",
        *(f"<0x{i:02X}>" for i in range(256)),
    ]
    metadata = {
        "ggml.model": "llama",
        "ggml.tokens": tokens,
        "ggml.token_type": [
            UNKNOWN,
            CONTROL,
            CONTROL,
            CONTROL,
            NORMAL,
            NORMAL,
            NORMAL,
            *[BYTE] * 256,
        ],
        "ggml.scores": [0.0] * 4 + [-1.0, -2.0, -3.0] + [0.0] * 256,
        "ggml.bos_token_id": 1,
        "ggml.add_bos_token": False,
    }
    assert read(metadata, "phi3").encode("<|user|> \n a") == [3, 6]
    assert read(metadata, "llama").encode("<|user|> a") == [3, 4, 6]


def test_a_vocabulary_may_end_texts_and_have_templates_by_name() -> None:
    metadata = metadata_of(byte_level(), "gpt2", **{"ggml.pre": "gpt-2"})
    metadata |= {
        "ggml.eos_token_id": 5,
        "ggml.bos_token_id": 4,
        "ggml.add_eos_token": True,
        "ggml.add_bos_token": True,
        "chat_template": "{{ messages[0].content }}{{ bos_token }}",
        "chat_templates": ["rag"],
        "chat_template.rag": "r",
    }
    ours = read(metadata)
    assert ours.encode("")[0] == 4
    assert ours.encode("")[-1] == 5
    assert ours.chat_template == {"default": metadata["chat_template"], "rag": "r"}
    said = ours.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert said == "Hi" + metadata["ggml.tokens"][4]


def test_a_draft_shares_what_its_target_has_built() -> None:
    stated = metadata_of(byte_level(), "gpt2", **{"ggml.pre": "gpt-2"})
    target, draft = (read({**stated, "chat_template": each}) for each in ("one", "other"))
    assert target.backend is draft.backend
    assert (target.chat_template, draft.chat_template) == ("one", "other")
    more = {"ggml.tokens": [*stated["ggml.tokens"], "a new one"]}
    more["ggml.token_type"] = [*stated["ggml.token_type"], NORMAL]
    assert read({**stated, **more}).backend is not target.backend
    assert read(stated, "qwen2").backend is not target.backend
