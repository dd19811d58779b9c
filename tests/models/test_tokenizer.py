"""The tokenizers of folders are those that transformers makes of the same files."""

import json
import os
import pickle
import random
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import transformers
from packaging.version import Version
from transformers import AutoTokenizer
from transformers.models.auto import tokenization_auto as auto

from specx.errors import ModelError
from specx.models import tokenizer_class
from specx.models.families import FAMILIES as DECODERS
from specx.models.families.text_part import PARTS
from specx.models.source import locate
from specx.models.tokenizer import Tokenizer
from specx.models.tokenizer_class import WHOLE
from specx.models.tokenizer_files import load_tokenizer, read_tokenizer
from tests.models import tokenizer_folders
from tests.models.texts import texts

# The release whose table of classes ours follows; older ones take other classes for some families.
FOLLOWED = Version("5.23")
as_followed = pytest.mark.skipif(
    Version(transformers.__version__) < FOLLOWED, reason="transformers has an older table"
)
SMOLLM2 = os.environ.get("SPECX_SMOLLM2")  # a folder with SmolLM2 135M Instruct


def both(folder: Path) -> tuple[Tokenizer, Any]:
    ours = read_tokenizer(folder)
    assert ours is not None
    return ours, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def check_same(folder: Path, count: int = 500) -> None:
    ours, theirs = both(folder)
    check_same_facts(ours, theirs)
    special = [token.content for token in ours.added_tokens_decoder.values()]
    written = texts(count, special if len(special) < 50 else special[::7])
    for how in ({}, {"add_special_tokens": False}, {"split_special_tokens": True}):
        mine, other = (each(written, **how)["input_ids"] for each in (ours, theirs))
        assert dict(zip(written, mine, strict=True)) == dict(zip(written, other, strict=True))
        assert ours(written[7], **how)["input_ids"] == mine[7]
    rng = random.Random(1)
    rows = ours(written)["input_ids"]
    rows += [
        [rng.randrange(len(ours)) for _ in range(rng.randint(0, 9))] for _ in range(count // 4)
    ]
    for options in ({}, {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}):
        for row in rows:
            assert ours.decode(row, **options) == theirs.decode(row, **options)


def check_same_facts(ours: Tokenizer, theirs: Any) -> None:
    assert ours.get_vocab() == theirs.get_vocab()
    assert len(ours) == len(theirs)
    added = ours.added_tokens_decoder
    assert {i: repr(token) for i, token in added.items()} == {
        i: repr(token) for i, token in theirs.added_tokens_decoder.items()
    }
    assert ours.named == theirs.special_tokens_map
    for name in ("eos_token_id", "model_max_length", "chat_template"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.encode("One.") == theirs.encode("One.")


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=as_followed if name == "deepseek" else ())
        for name in tokenizer_folders.FAMILIES
    ],
)
def test_ids_and_text_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    check_same(tokenizer_folders.write(tmp_path, family))


@pytest.mark.slow
@pytest.mark.parametrize("family", tokenizer_folders.FAMILIES)
def test_more_texts(family: str, tmp_path: Path) -> None:
    check_same(tokenizer_folders.write(tmp_path, family), 2000)


@pytest.mark.parametrize("model", ["target", "draft"])
def test_the_embedded_tokenizer(model: str) -> None:
    check_same(locate(f"embedded:{model}", None, "target").folder)


@pytest.mark.slow
@pytest.mark.skipif(SMOLLM2 is None, reason="set SPECX_SMOLLM2 to a folder with the model")
def test_smollm2() -> None:
    folder = Path(str(SMOLLM2))
    check_same(folder, 2000)
    ours, theirs = both(folder)
    chat = [{"role": "user", "content": "Sum up."}]
    for prompt in (True, False):
        how = {"tokenize": False, "add_generation_prompt": prompt}
        assert ours.apply_chat_template(chat, **how) == theirs.apply_chat_template(chat, **how)


@as_followed
@pytest.mark.parametrize("family", tokenizer_class.FAMILIES)
def test_what_is_known_of_families_is_what_transformers_has_noted(family: str) -> None:
    registered = auto.TOKENIZER_MAPPING_NAMES.get(family) or ""
    ours = tokenizer_class.FAMILIES[family]
    assert (WHOLE if ours == tokenizer_class.TEKKEN else ours) == registered
    assert (family in tokenizer_class.MISNAMED) == (
        family in auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    )


def test_every_family_of_decoders_is_known() -> None:
    """Else transformers is imported for its tokenizer alone, which takes a second and more."""
    assert {*DECODERS, *PARTS} <= {*tokenizer_class.FAMILIES}


STATED = (
    *(None, "PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"),
    *(
        "LlamaTokenizer",
        "LlamaTokenizerFast",
        "GemmaTokenizer",
        "GPT2Tokenizer",
        "GPT2TokenizerFast",
    ),
    *("Qwen2Tokenizer", "Qwen2TokenizerFast", "GPTNeoXTokenizerFast", "CohereTokenizerFast"),
)


@as_followed
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3_text", "mistral", "phi3"])
@pytest.mark.parametrize("onto_bytes", [True, False])
def test_the_class_is_the_one_that_transformers_takes(
    family: str, onto_bytes: bool, tmp_path: Path
) -> None:
    tokenizer = tokenizer_folders.byte_level()
    if not onto_bytes:
        tokenizer = tokenizer_folders.sentencepiece("<unk>", "<s>", "</s>")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"model_type": family}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for stated in STATED:
        settings = {} if stated is None else {"tokenizer_class": stated}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        theirs = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
        ours = tokenizer_class.tokenizer_class(config, settings, lambda: onto_bytes)
        assert ours == type(theirs).__name__, stated


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("mamba", {}),  # unknown here
        ("llama", {"tokenizer_class": "XGLMTokenizer"}),
        ("llama", {"auto_map": {"AutoTokenizer": ["tokenization.Own", None]}}),
        ("llama", {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}),
        ("mistral", {"fix_mistral_regex": True}),
        ("llama", {"tokenizer_class": "T5Tokenizer"}),
    ],
)
def test_what_only_transformers_can_read_is_left_to_it(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer_folders.byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_tokenizer(tmp_path) is None


@pytest.mark.parametrize("family", tokenizer_folders.LEFT)
def test_rare_layouts_are_left_to_transformers(family: str, tmp_path: Path) -> None:
    folder = tokenizer_folders.write(tmp_path, family)
    assert read_tokenizer(folder) is None
    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert load_tokenizer(folder, "The target x").encode("One.") == theirs.encode("One.")


def test_special_tokens_in_files_of_their_own_are_left_to_transformers(tmp_path: Path) -> None:
    folder = tokenizer_folders.write(tmp_path, "deepseek")
    (folder / "special_tokens_map.json").write_text('{"pad_token": "<pad>"}')
    assert read_tokenizer(folder) is None
    assert load_tokenizer(folder, "The target x").pad_token == "<pad>"


def test_a_folder_without_its_file_is_left_to_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert read_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has a tokenizer\.model but no tokenizer_config\.json"):
        load_tokenizer(tmp_path, "The target x")


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"bos_token": 7}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"a": {}}}'),
        ("tokenizer_config.json", '{"chat_template": [1]}'),
        ("chat_template.jinja", "\udcff"),
    ],
)
def test_damaged_files_are_one_sentence(file: str, contents: str, tmp_path: Path) -> None:
    folder = tokenizer_folders.write(tmp_path, "deepseek")
    (folder / file).write_text(contents, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ModelError) as caught:
        load_tokenizer(folder, "The target x")
    sentence = str(caught.value)
    assert sentence.startswith("The target x has no tokenizer that can be read (")
    assert sentence.endswith("); download the model with its tokenizer files.")


def test_a_draft_shares_what_its_target_has_built(tmp_path: Path) -> None:
    target, draft, other = (tmp_path / name for name in ("target", "draft", "other"))
    for folder in (target, draft, other):
        tokenizer_folders.write(folder, "qwen3")
    of_draft = {"model_max_length": 77, "chat_template": "{{ messages }}"}
    for folder, changes in ((draft, of_draft), (other, {"pad_token": "<|im_end|>"})):
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")
    ours, its, another = (read_tokenizer(folder) for folder in (target, draft, other))
    assert ours is not None
    assert its is not None
    assert another is not None
    assert ours.backend is its.backend
    assert (its.model_max_length, its.chat_template) == (77, "{{ messages }}")
    assert ours.chat_template != its.chat_template
    assert another.backend is not ours.backend
    for folder in (draft, other):
        check_same_facts(*both(folder))


def test_a_tokenizer_can_be_sent_to_another_process(tmp_path: Path) -> None:
    ours = read_tokenizer(tokenizer_folders.write(tmp_path, "gpt-oss"))
    assert ours is not None
    sent = pickle.loads(pickle.dumps(ours))
    text = "One<|return|> two"
    for how in ({}, {"split_special_tokens": False}):
        assert sent(text, **how) == ours(text, **how)
    assert sent.named == ours.named


def test_reading_and_using_a_tokenizer_imports_little() -> None:
    code = """
import sys
from specx.models.source import locate
from specx.models.tokenizer_files import load_tokenizer
tokenizer = load_tokenizer(locate("embedded:target", None, "target").folder, "The target")
tokenizer.decode(tokenizer.encode("One."))
print({"torch", "transformers", "jinja2", "numpy"} & sys.modules.keys())
tokenizer.chat_template = "{{ messages }}"
tokenizer.apply_chat_template([{"role": "user", "content": "a"}])
print({"torch", "transformers", "numpy"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"


def test_mistral_without_a_template(tmp_path: Path) -> None:
    """Of a folder with tekken.json alone."""
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
    special = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)]
    vocab = [
        {"rank": i, "token_bytes": b64encode(bytes([i])).decode(), "token_str": None}
        for i in range(256)
    ]
    config = {
        "pattern": r"\\p{L}+|\\s+", "num_vocab_tokens": 256, "default_vocab_size": 263,
        "default_num_special_tokens": 7, "version": "v7",
    }  # fmt: skip
    made = {"config": config, "vocab": vocab, "special_tokens": special}
    (tmp_path / "tekken.json").write_text(json.dumps(made))
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    ours = load_tokenizer(tmp_path, "The target m")
    assert ours.encode("A")[0] == 1
    assert ours.eos_token_id == 2
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert ours.apply_chat_template(chat) == "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U[/INST]"
