"""A needle is in the document at its depth, and its quote is what the document says."""

import pytest

from specx.bench.cases import generated_documents, make_cases
from specx.bench.needles import DIGITS, hide, random_number
from specx.errors import UsageError
from specx.models.load import ModelSpec, load_model
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from tests.tiny import make_tokenizer

DOCUMENTS = generated_documents(1, 900, seed=0)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_in_a_digest_the_quote_is_cut_out_of_the_prompt(depth: float) -> None:
    tokenizer = load_model(ModelSpec("embedded:target"), "cpu", "target").tokenizer
    kind = Digest(tokenizer, 8)
    case = make_cases(kind, "digest", DOCUMENTS, 900, most=1)[0]
    needle = hide(kind, tokenizer, case, depth)
    ids, quote = needle.prompt.token_ids, needle.quote
    assert 700 < len(ids) <= 900
    places = [i for i in range(len(ids)) if ids[i : i + len(quote)] == quote]
    assert len(places) == 1
    assert places[0] / len(ids) == pytest.approx(depth, abs=0.15)
    assert tokenizer.decode([quote[0]]).startswith("<p")
    number = "".join(tokenizer.decode([quote[place]]) for place in needle.digits)
    assert number.replace(" ", "") == random_number(f"{case.name} {depth}")


def test_for_other_models_the_quote_is_the_sentence() -> None:
    tokenizer = make_tokenizer()
    kind = Instruct(tokenizer, "Summarize.")
    case = make_cases(kind, "instruct", DOCUMENTS, 1800, most=1)[0]
    needle = hide(kind, tokenizer, case, 0.3)
    assert 1300 < len(needle.prompt.token_ids) <= 1800
    said = tokenizer.decode(needle.quote)
    assert said in tokenizer.decode(needle.prompt.token_ids)
    number = "".join(tokenizer.decode([needle.quote[place]]) for place in needle.digits)
    assert number == random_number(f"{case.name} 0.3")
    assert number in said


def test_numbers_are_random_and_repeatable() -> None:
    assert random_number("a") == random_number("a") != random_number("b")
    assert len(random_number("a")) == DIGITS


def test_a_document_that_is_too_short() -> None:
    kind = Instruct(make_tokenizer(), "Summarize.")
    case = make_cases(kind, "instruct", DOCUMENTS, 700, most=1)[0]
    short = type(case)(case.document, 60, case.task, case.prompt)
    with pytest.raises(UsageError, match="60 tokens"):
        hide(kind, make_tokenizer(), short, 0.5)
