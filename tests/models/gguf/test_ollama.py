"""Files of ollama's own converters: other names, keys that are missing, towers that see.

What they look like is stated by ollama itself (``llama/compat/llama-ollama-compat.cpp`` in its
repository, and ``convert/`` there).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from specx.errors import ModelError
from specx.models.facts import window
from specx.models.gguf.checkpoint import read_checkpoint
from specx.models.gguf.metadata import Metadata
from specx.models.gguf.vocabulary import tokenizer_of
from specx.models.tokenizer import Tokenizer as OurTokenizer
from tests.models.families import Text
from tests.models.gguf.test_families import (
    CASES,
    DEEPSEEK,
    GEMMA3_ROPE,
    HEAD,
    LATENT,
    LOCAL,
    OSS_YARN,
    WINDOW,
    decoder_of,
    made,
)
from tests.models.gguf.test_vocabulary import metadata_of
from tests.models.gguf.writer import write_model
from tests.models.tokenizer_folders import byte_level, sentencepiece

Changed = Callable[[gguf.GGUFWriter], None]
TOWER = ("v.blk.0.attn_q.weight", "mm.input_projection.weight")


def rewritten(
    architecture: str = "",
    *,
    keys: dict[str, str | None] | None = None,
    tensors: dict[str, str] | None = None,
    more: tuple[str, ...] = (),
) -> Changed:
    """Return what another converter writes: its name of an architecture, keys, parts of names.

    None: without that key. ``more``: tensors that no decoder of text reads.
    """

    def change(writer: gguf.GGUFWriter) -> None:
        old, (values,), (stored,) = writer.arch, writer.kv_data, writer.tensors
        for key, other in (keys or {}).items():
            value = values.pop(f"{old}.{key}")
            if other is not None:
                values[f"{old}.{other}"] = value
        for name in list(values):
            if architecture and name.startswith(f"{old}."):
                values[architecture + name.removeprefix(old)] = values.pop(name)
        if architecture:
            values["general.architecture"].value = architecture
        for name in list(stored):
            for part, other in (tensors or {}).items():
                if part in name:
                    stored[name.replace(part, other)] = stored.pop(name)
        for name in more:
            writer.add_tensor(name, np.ones((4, 4), np.float32))

    return change


def latent_swapped(writer: gguf.GGUFWriter) -> None:
    """Write sizes of heads where llama.cpp has those of the latent vector, and the reverse."""
    rewritten("glm4moelite")(writer)
    (values,) = writer.kv_data
    for part in ("key", "value"):
        names = [f"glm4moelite.attention.{part}_length{end}" for end in ("", "_mla")]
        values |= zip(names, [values[name] for name in reversed(names)], strict=True)
    values["glm4moelite.attention.head_count_kv"].value = 4


def fused(writer: gguf.GGUFWriter) -> None:
    """Write gates and ups of experts in one tensor, and the scales of experts by ollama's name."""
    (stored,) = writer.tensors
    for name in [name for name in stored if "ffn_gate_exps" in name]:
        up = stored.pop(name.replace("gate", "up")).tensor
        both = np.concatenate([stored.pop(name).tensor, up], axis=1)
        writer.add_tensor(name.replace("gate_exps", "gate_up_exps"), both)
    rewritten(tensors={"ffn_down_exps.scale": "ffn_gate_inp.per_expert_scale"})(writer)


EPSILON: dict[str, str | None] = {"attention.layer_norm_rms_epsilon": None}
GEMMA3 = {**HEAD, **WINDOW, "query_pre_attn_scalar": 32, "num_hidden_layers": 7}
OSS = {**HEAD, **WINDOW, **LOCAL, "rope_parameters": OSS_YARN, "rms_norm_eps": 1e-5}
MINISTRAL_KEYS = {
    "rope.scaling.yarn_log_multiplier": "rope.scaling.mscale_all_dim",
    "attention.temperature_scale": "rope.scaling_beta",
}
# Name of the case: architecture of llama.cpp, type, settings, and what ollama writes.
FILES: dict[str, tuple[str, str, dict[str, Any], Changed]] = {
    "gpt-oss": (
        *("gpt-oss", "gpt_oss", OSS),
        rewritten(
            "gptoss",
            keys={"rope.scaling.type": None, "expert_feed_forward_length": None},
            tensors={
                "attn_output": "attn_out",
                "attn_sinks.weight": "attn_sinks",
                "post_attention_norm": "ffn_norm",
            },
        ),
    ),
    "gemma3": (
        *("gemma3", "gemma3_text", GEMMA3),
        rewritten(
            keys={
                **EPSILON,
                "rope.freq_base": "rope.global.freq_base",
                "rope.freq_base_swa": "rope.local.freq_base",
            },
            more=TOWER,
        ),
    ),
    "gemma3 of 131,072 tokens": (
        *("gemma3", "gemma3_text"),
        {**GEMMA3, "rope_parameters": GEMMA3_ROPE, "max_position_embeddings": 131_072},
        rewritten(
            keys={**EPSILON, "rope.scaling.type": None, "rope.scaling.factor": None}, more=TOWER
        ),
    ),
    "gemma4": (
        *CASES["gemma4"],
        rewritten(more=(*TOWER, "a.blk.0.attn_q.weight", "model.vision_tower.x.weight")),
    ),
    "mistral small 3": ("llama", "llama", HEAD, rewritten("mistral3", more=TOWER)),
    "ministral 3": (*CASES["ministral 3"], rewritten(keys=MINISTRAL_KEYS, more=TOWER)),
    "qwen2.5-vl": (*CASES["qwen2-vl"], rewritten("qwen25vl", more=TOWER)),
    "qwen3-vl": (*CASES["qwen3-vl"], rewritten(more=TOWER)),
    "qwen3-vl moe": (
        *CASES["qwen3-vl moe"],
        rewritten(keys={"expert_feed_forward_length": None}, more=TOWER),
    ),
    "olmo3": (*CASES["olmo3"], rewritten("olmo3")),
    "gemma4 with experts": (*CASES["gemma4 experts"], fused),
    "glm-4.7 flash": ("deepseek2", "glm4_moe_lite", {**DEEPSEEK, **LATENT}, rewritten()),
    "glm-4.7 flash by ollama": (
        *("deepseek2", "glm4_moe_lite", {**DEEPSEEK, **LATENT}),
        latent_swapped,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_llama_cpps_is(name: str, tmp_path: Path) -> None:
    architecture, model_type, settings, changed = FILES[name]
    model, file = made(model_type, settings), tmp_path / "model.gguf"
    write_model(file, model, architecture, stated=settings, changed=changed)
    checkpoint = read_checkpoint(file, "The target m")
    ids = torch.randint(3, 99, (1, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits[0]
    own = Text(decoder_of(checkpoint), capacity=128).read(ids[0])
    assert torch.allclose(expected, own, atol=1e-4 * expected.abs().max().item(), rtol=1e-4)
    stated = settings.get("max_position_embeddings", 256)
    if model_type == "gemma3_text":
        assert window(checkpoint.config) == stated


def tokenizer(architecture: str, rows: int = 99_999, **stated: Any) -> OurTokenizer:
    theirs = byte_level()
    theirs.add_special_tokens(["<|eot_id|>"])
    written = metadata_of(theirs, "gpt2", **{"ggml.add_bos_token": False, **stated})
    values = {f"tokenizer.{key}": value for key, value in written.items()}
    return tokenizer_of(Metadata({"general.architecture": architecture, **values}, "m"), rows)


@pytest.mark.parametrize(
    ("architecture", "pre", "as_named"),
    [
        ("gptoss", "default", "gpt-4o"),
        ("glm4moelite", None, "glm4"),
        ("mistral3", "default", "tekken"),
        ("mistral3", None, "tekken"),
        ("llama", None, "llama-bpe"),
        ("llama", "default", "llama-bpe"),
        ("qwen2", "default", "default"),
    ],
)
def test_a_missing_pre_tokenizer_is_the_familys(
    architecture: str, pre: str | None, as_named: str
) -> None:
    def cuts(**stated: str) -> list[Any]:
        words = tokenizer(architecture, **stated).backend.pre_tokenizer
        return words.pre_tokenize_str("I'LL payCamelCase 12345 €/\n\n  x")

    kinds = {name: str(cuts(**{"ggml.pre": name})) for name in ("gpt-4o", "tekken", "llama-bpe")}
    assert len({*kinds.values()}) == 3
    found = cuts(**({} if pre is None else {"ggml.pre": pre}))
    assert found == cuts(**{"ggml.pre": as_named})
    assert str(found) == kinds.get(as_named, str(found))


def test_tokens_of_pictures_behind_the_rows_are_left_out() -> None:
    theirs = sentencepiece()
    stated = metadata_of(theirs, "llama")
    del stated["ggml.merges"]
    stated["ggml.scores"] = [-float(i) for i in range(len(stated["ggml.tokens"]))]
    values = {f"tokenizer.{key}": value for key, value in stated.items()}
    rows = len(stated["ggml.tokens"]) - 1
    values["general.architecture"] = "gemma3"
    found = tokenizer_of(Metadata(values, "m"), rows)
    assert len(found.get_vocab()) == rows
    values["general.architecture"] = "llama"
    with pytest.raises(ModelError, match=f"there are {rows + 1} tokens but {rows} embeddings"):
        tokenizer_of(Metadata(values, "m"), rows)


def test_gemma4_is_no_sentencepiece_model() -> None:
    stated = metadata_of(sentencepiece(), "llama", **{"ggml.pre": "gemma4"})
    values = {f"tokenizer.{key}": value for key, value in stated.items()}
    values["general.architecture"] = "gemma4"
    ours = tokenizer_of(Metadata(values, "m"), 99_999)
    theirs = tokenizer_of(Metadata(values | {"tokenizer.ggml.model": "gemma4"}, "m"), 99_999)
    for text in ("Two  words", "a\nb"):
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]


def test_all_ids_that_end_a_text_are_known(tmp_path: Path) -> None:
    architecture, model_type, settings, changed = FILES["gpt-oss"]
    file = tmp_path / "model.gguf"

    def tokens(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"t{i}" for i in range(99)])
        writer.add_eos_token_id(5)
        writer.add_array("tokenizer.ggml.eos_token_ids", [5, 7])

    model = made(model_type, settings)
    write_model(file, model, architecture, stated=settings, tokenizer=tokens, changed=changed)
    assert read_checkpoint(file, "m").generation["eos_token_id"] == [5, 7]
