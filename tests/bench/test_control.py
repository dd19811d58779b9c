"""The control task: the digest in other tokens, read as the digest."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from specx.bench.cases import Control, first_text_id, substitute
from specx.documents.document import Document, Paragraph
from specx.errors import ModelError
from specx.models.source import locate
from specx.prompts.digest import Digest
from tests.tiny import make_tokenizer

TOKENIZER = AutoTokenizer.from_pretrained(locate("embedded:target", None, "target").folder)
FIRST = first_text_id(TOKENIZER)
LEADS = ["The council closed the bridge — for a year.", "Ships went around the island."]
PAPER = Document("a.txt", "text", (), tuple(Paragraph(f"{lead} More?", None) for lead in LEADS))


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


@given(st.integers(0, 2**14), st.integers(0, 2**12).map(lambda half: 2 * half))
def test_partners_are_mutual_and_stay_on_their_side(token: int, first: int) -> None:
    partner = substitute(token, first)
    assert substitute(partner, first) == token
    assert (partner >= first) == (token >= first) == (partner != token)


@pytest.mark.parametrize(
    ("make", "dtype"), [(np.array, np.uint16), (np.array, np.int64), (torch.tensor, torch.int64)]
)
def test_whole_arrays(make: Any, dtype: Any) -> None:
    swapped = substitute(make([[1, 9], [10, 13]], dtype=dtype), 10)
    assert swapped.dtype == dtype
    assert swapped.tolist() == [[1, 9], [11, 12]]


def test_text_begins_behind_every_other_token() -> None:
    others = TOKENIZER.added_tokens_decoder
    assert set(others) == set(range(FIRST))
    assert {"<end>", "<sub>", "<n64>", "<p1023>"} <= {str(token) for token in others.values()}
    assert first_text_id(make_tokenizer(("<p0>",))) == len(make_tokenizer(("<p0>",)))


def test_only_the_request_differs() -> None:
    (digest,) = Digest(TOKENIZER, 4, whole=True).prompts(PAPER, 1000)
    (control,) = Control(TOKENIZER, 4).prompts(PAPER, 1000)
    assert control.units == digest.units
    pairs = zip(digest.token_ids, control.token_ids, strict=True)
    ours = [pair for pair in pairs if len(set(pair)) > 1]
    assert ours == [tuple(TOKENIZER.convert_tokens_to_ids(["<sum>", "<sub>"]))]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_control_output_reads_as_the_digest(size: int) -> None:
    ids = encode("".join(f"<p{n}>{lead}" for n, lead in enumerate(LEADS)))
    written = [substitute(token, FIRST) for token in ids]
    control = Control(TOKENIZER, 4)
    (prompt,) = control.prompts(PAPER, 1000)
    reader = control.reader(prompt)
    shown = "".join(reader.feed(written[i : i + size]) for i in range(0, len(written), size))
    rest, output = reader.finish()
    assert [quote.sentence for quote in output.quotes] == LEADS
    assert all(quote.verbatim for quote in output.quotes)
    assert shown + rest == output.text == f"{LEADS[0]} [¶1]\n\n{LEADS[1]} [¶2]"


@pytest.mark.parametrize("extra", [(), ("<sub>",)])
def test_a_model_without_the_task_is_refused(extra: tuple[str, ...]) -> None:
    markers = ("<p0>", "<sum>", *(f"<n{i}>" for i in range(1, 5)), *extra)
    tokenizer = make_tokenizer(markers)  # text comes first here
    assert Digest(tokenizer, 4)
    with pytest.raises(ModelError, match="--task digest"):
        Control(tokenizer, 4)
