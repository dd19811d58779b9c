"""Tiny random checkpoints in the hub's file layout, for tests that load real models.

``make_checkpoint(folder, "qwen3", seed=1)`` writes what ``save_pretrained`` writes for a model of
that family: config.json, generation_config.json, model.safetensors and a byte-level tokenizer.
"""

import io
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
VOCAB = 384  # tokens of the tokenizer, and rows of the lm head unless overridden
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
_SENTENCES = (
    "The committee met in the old town hall and read the report of the harbour master.",
    "A lighthouse keeper writes down the weather, the ships and the birds of every day.",
    "Summarize the document in at most three hundred words, and keep its order.",
    "In the second year 1,240 ships passed; in the third there were no more than 980.",
    "“Nothing is lost,” said the clerk, “as long as somebody copies it out again.”",
)
_CONFIGS = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "smollm3": SmolLM3Config,
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    # The second layer has no rotary positions.
    "smollm3": {"no_rope_layer_interval": 2, "tie_word_embeddings": False},
}
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.2,  # large enough that the logits of a random model have a clear winner
}


def make_checkpoint(
    folder: str | Path,
    family: str = "llama",
    seed: int = 0,
    *,
    extra_tokens: tuple[str, ...] = (),
    chat_template: bool = False,
    dtype: torch.dtype = torch.float32,
    shard_size: str | None = None,
    torch_file: bool = False,
    **config_overrides: Any,
) -> Path:
    """Write a random model of ``family`` (a key of ``_CONFIGS``) and return its folder.

    ``config_overrides`` go to the config: ``num_hidden_layers=4``, ``vocab_size=400`` for a
    padded lm head, ``rope_parameters={**YARN, "rope_theta": 1e4}``, ``tie_word_embeddings=True``.
    ``shard_size`` ("100KB") writes several weight files with an index; ``torch_file`` writes
    pytorch_model.bin. ``extra_tokens`` are added behind the tokenizer's own.
    """
    folder = Path(folder)
    model = make_model(family, seed, **config_overrides).to(dtype)
    model.save_pretrained(folder, **({"max_shard_size": shard_size} if shard_size else {}))
    if torch_file:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    make_tokenizer(extra_tokens, chat_template).save_pretrained(folder)
    return folder


def make_sentencepiece_checkpoint(folder: str | Path, seed: int = 0, **config: Any) -> Path:
    """Write a random Llama as Vicuna's repositories are: the tokenizer is a SentencePiece file."""
    folder = Path(folder)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    make_model("llama", seed, **{**ids, **config}).save_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(_trained_sentencepiece())
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": "<unk>",
        "model_max_length": 2048,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def make_model(family: str = "llama", seed: int = 0, **config_overrides: Any) -> Any:
    """A random model with the attention of transformers itself, in float32 and eval mode."""
    config = _CONFIGS[family](**{**_SHAPE, **_SETTINGS.get(family, {}), **config_overrides})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).eval()


def make_tokenizer(
    extra_tokens: tuple[str, ...] = (), chat_template: bool = False
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of ``VOCAB`` tokens; ids 0, 1, 2 are BOS, EOS and padding."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=2048,
    )
    tokenizer.add_tokens(list(extra_tokens))
    if chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def copy_checkpoint(source: Path, folder: str | Path) -> Path:
    """A copy of a checkpoint that a test may damage."""
    return Path(shutil.copytree(source, folder))


@cache
def _trained() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES * 4, trainer)
    if tokenizer.get_vocab_size() != VOCAB:
        raise RuntimeError("the sentences are too few for the vocabulary")
    return tokenizer.to_str()


@cache
def _trained_sentencepiece() -> bytes:
    """A SentencePiece model of ``VOCAB`` tokens, bytes included; 1 and 2 are BOS and EOS."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_SENTENCES * 4),
        model_writer=trained,
        model_type="bpe",
        vocab_size=VOCAB,
        byte_fallback=True,
        minloglevel=2,
        num_threads=1,
    )
    return trained.getvalue()
