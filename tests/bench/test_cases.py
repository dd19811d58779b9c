import pytest

from specx.bench.cases import beginning, first_paragraphs, generated_documents, make_cases
from specx.errors import UsageError
from specx.prompts.digest import Digest
from tests.bench.benches import embedded


@pytest.fixture(scope="module")
def digest() -> Digest:
    return Digest(embedded()[0].target.tokenizer, 8, whole=True)


def test_the_beginning_is_as_many_whole_paragraphs_as_fit(digest):
    (document,) = generated_documents(1, 1024, seed=0)
    prompt = beginning(digest, document, 512)
    read = prompt.units[-1].paragraph + 1
    assert len(prompt.token_ids) <= 512
    assert not prompt.left_out
    (one_more,) = digest.prompts(first_paragraphs(document, read + 1), 10**9)
    assert len(one_more.token_ids) > 512


def test_no_paragraph_fits(digest):
    assert beginning(digest, generated_documents(1, 512, seed=0)[0], 8) is None


def test_documents_are_long_enough_or_left_out(digest):
    short, *long = (*generated_documents(1, 64, seed=1), *generated_documents(3, 1024, seed=2))
    cases = make_cases(digest, [short, *long], 1024, most=2)
    assert [case.name for case in cases] == [document.name for document in long[:2]]
    assert all(0.8 * 1024 <= len(case.ids) <= 1024 for case in cases)
    with pytest.raises(UsageError, match="no document has 1K tokens"):
        make_cases(digest, [short], 1024, most=2)
