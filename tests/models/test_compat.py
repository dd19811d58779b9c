"""Which pairs share a vocabulary, and which ids each side may produce."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specx.errors import ModelError
from specx.models.compat import check_pair

Make = Callable[..., Path]
Load = Callable[..., Any]


def _refused(target: Any, draft: Any) -> str:
    with pytest.raises(ModelError) as caught:
        check_pair(target, draft)
    sentence = str(caught.value)
    assert sentence.startswith(f"The target {target.source} and the draft {draft.source} ")
    assert sentence.endswith("family, or none: --method lookup needs no draft.")
    return sentence


def _edit_tokenizer(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    edit(content)
    file.write_text(json.dumps(content), "utf-8")
    return folder


def test_same_tokenizer(checkpoint: Make, load: Load) -> None:
    target_allowed, draft_allowed = check_pair(
        load(checkpoint()), load(checkpoint("qwen3"), "draft")
    )
    assert target_allowed.all()
    assert draft_allowed.all()


@pytest.mark.parametrize(("rows", "draft_rows"), [(448, 384), (384, 448), (512, 448)])
def test_padded_tails(checkpoint: Make, load: Load, rows: int, draft_rows: int) -> None:
    target_allowed, draft_allowed = check_pair(
        load(checkpoint(vocab_size=rows)), load(checkpoint(vocab_size=draft_rows), "draft")
    )
    for allowed, height in ((target_allowed, rows), (draft_allowed, draft_rows)):
        assert allowed.tolist() == [True] * 384 + [False] * (height - 384)


def test_new_tokens_of_the_target_within_the_drafts_padding(checkpoint: Make, load: Load) -> None:
    target = load(checkpoint(vocab_size=448, extra_tokens=("<think>", "</think>")))
    target_allowed, draft_allowed = check_pair(target, load(checkpoint(vocab_size=448), "draft"))
    assert target_allowed.sum() == 386
    assert draft_allowed.sum() == 384


def test_new_tokens_of_the_draft_are_never_proposed(checkpoint: Make, load: Load) -> None:
    draft = load(checkpoint(vocab_size=448, extra_tokens=("<think>",)), "draft")
    target_allowed, draft_allowed = check_pair(load(checkpoint(vocab_size=448)), draft)
    assert draft_allowed.sum() == target_allowed.sum() == 384


def test_new_tokens_of_the_target_beyond_the_drafts_rows(checkpoint: Make, load: Load) -> None:
    target = load(checkpoint(vocab_size=448, extra_tokens=("<think>",)))
    sentence = _refused(target, load(checkpoint(), "draft"))
    assert "token id 384 ('<think>') is beyond the draft's 384 rows" in sentence


def test_tokens_without_rows_are_masked(checkpoint: Make, load: Load) -> None:
    target, draft = (
        load(checkpoint(extra_tokens=("<pad2>",)), role) for role in ("target", "draft")
    )
    target_allowed, draft_allowed = check_pair(target, draft)
    assert draft_allowed.sum() == target_allowed.sum() == 384


def test_first_differing_token_is_named(checkpoint: Make, broken: Make, load: Load) -> None:
    def swap(content: dict[str, Any]) -> None:
        vocab = content["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

    target = load(checkpoint())
    draft = load(_edit_tokenizer(broken(), swap), "draft")
    ids = target.tokenizer.get_vocab()
    first = min(ids["a"], ids["b"])
    ours, theirs = ("a", "b") if first == ids["a"] else ("b", "a")
    assert f"token id {first} is '{ours}' in the target and '{theirs}' in the draft" in _refused(
        target, draft
    )


def test_added_tokens_are_compared(checkpoint: Make, load: Load) -> None:
    target = load(checkpoint(vocab_size=448, extra_tokens=("<a>", "<b>")))
    draft = load(checkpoint(vocab_size=448, extra_tokens=("<a>", "<c>")), "draft")
    assert "token id 385 is '<b>' in the target and '<c>' in the draft" in _refused(target, draft)


def test_holes_are_not_tails(checkpoint: Make, broken: Make, load: Load) -> None:
    def drop(content: dict[str, Any]) -> None:
        vocab = content["model"]["vocab"]
        last = max(vocab, key=vocab.get)
        renamed = {token: i for token, i in vocab.items() if token != last}
        content["model"]["vocab"] = {**renamed, last: vocab[last] + 1}

    draft = load(_edit_tokenizer(broken(), drop), "draft")
    assert "token id 383 is " in _refused(load(checkpoint()), draft)


def test_same_tokens_but_another_split(checkpoint: Make, broken: Make, load: Load) -> None:
    def forget_merges(content: dict[str, Any]) -> None:
        content["model"]["merges"] = content["model"]["merges"][:10]

    draft = load(_edit_tokenizer(broken(), forget_merges), "draft")
    assert "have the same tokens but split 'The quick brown" in _refused(load(checkpoint()), draft)
