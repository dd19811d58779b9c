"""Repositories whose only tokenizer is a SentencePiece file, as Vicuna's and LongChat's are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor

from specx.cli.main import run
from specx.errors import ModelError
from specx.prompts.tokens import Detokenizer
from tests.runs.pairs import TEXT, write_profile
from tests.tiny import make_sentencepiece_checkpoint

SENTENCE = "The committee met – in the hall – 1,240 ships; “größer” 船."


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sentencepiece_checkpoint(tmp_path_factory.mktemp("target"), seed=1)


def test_tokens_are_those_of_sentencepiece(target: Path, load: Callable[..., Any]) -> None:
    assert not (target / "tokenizer.json").exists()
    tokenizer = load(target).tokenizer
    theirs = SentencePieceProcessor(model_file=str(target / "tokenizer.model"))
    ids = tokenizer(SENTENCE)["input_ids"]
    assert ids == [1, *theirs.encode(SENTENCE)]
    assert tokenizer.decode(ids, skip_special_tokens=True) == theirs.decode(ids[1:]) == SENTENCE


def test_text_arrives_piece_by_piece(target: Path, load: Callable[..., Any]) -> None:
    tokenizer = load(target).tokenizer
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.feed([token]) for token in tokenizer(SENTENCE)["input_ids"]]
    assert "".join(pieces) + detokenizer.finish() == SENTENCE
    assert "\ufffd" not in "".join(pieces)


def test_a_summary_from_end_to_end(
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    draft = make_sentencepiece_checkpoint(tmp_path / "draft", seed=2, num_hidden_layers=1)
    models = {"target": {"model": str(target)}, "draft": {"model": str(draft)}}
    profile = write_profile(tmp_path, "vicuna", **models)
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(f"{TEXT}\n\n{TEXT}\n")
    assert run(["summarize", "a.txt", "--json", "--check-lossless", "-p", profile]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["lossless"]["identical"] is True
    assert report["method"] == "specextend"
    assert report["generated_tokens"] == 24
    assert report["summary"].strip()


def test_a_sentencepiece_file_alone_is_refused(tmp_path: Path, load: Callable[..., Any]) -> None:
    folder = make_sentencepiece_checkpoint(tmp_path / "alone")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.model but no tokenizer_config\.json, which"):
        load(folder)
