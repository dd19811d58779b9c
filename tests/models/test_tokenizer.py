"""The tokenizers of folders are those that transformers makes of the same files."""

import random
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from specx.models.source import locate
from specx.models.tokenizer import Tokenizer
from specx.models.tokenizer_files import read_tokenizer
from tests.models import tokenizer_folders
from tests.models.texts import texts

SMOLLM2 = Path("/tmp/smollm2")


def both(folder: Path) -> tuple[Tokenizer, Any]:
    ours = read_tokenizer(folder)
    assert ours is not None
    return ours, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def check_same(folder: Path, count: int = 2000) -> None:
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
    for name in ("eos_token_id", "bos_token_id", "model_max_length", "chat_template"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.encode("One.") == theirs.encode("One.")


@pytest.mark.parametrize("family", tokenizer_folders.FAMILIES)
def test_ids_and_text_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    check_same(tokenizer_folders.write(tmp_path, family))


@pytest.mark.parametrize("model", ["target", "draft"])
def test_the_embedded_tokenizer(model: str) -> None:
    check_same(locate(f"embedded:{model}", None, "target").folder)


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="the model is not there")
def test_smollm2() -> None:
    check_same(SMOLLM2)
