"""How finely the embedded tokenizer cuts real documents, against what its size allows.

``SPECX_GOVREPORT`` names the folder of the evaluation documents and ``SPECX_CORPUS`` the corpus
file that ``specx.training.corpus`` wrote. Two tokenizers are learned from the same balanced sample
by the same code: one of the size of the shipped one, one of 32,000 tokens; both sizes include the
1,092 special tokens. ``-s`` shows the table.
"""

import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from specx.documents.document import Document
from specx.training.corpus import read_corpus
from specx.training.tokenizer import VOCABULARY, balanced_sample, train_tokenizer

LARGE = 32_000
# A capital after a lower-case word: no beginning of a sentence. A number, with its separators.
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+\b")
NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")


@pytest.fixture(scope="module")
def texts(govreport: dict[str, list[Document]]) -> list[str]:
    documents = [document for size in govreport.values() for document in size]
    return [" ".join(paragraph.text for paragraph in d.paragraphs) for d in documents]


@pytest.fixture(scope="module")
def tokenizers(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, PreTrainedTokenizerFast]:
    corpus = os.environ.get("SPECX_CORPUS")
    if not corpus:
        pytest.skip("SPECX_CORPUS does not name the corpus file")
    sample = list(balanced_sample(read_corpus(Path(corpus))))
    shipped = files("specx") / "models" / "embedded" / "target"
    return {"shipped": PreTrainedTokenizerFast.from_pretrained(str(shipped))} | {
        f"{size:,}": train_tokenizer(sample, tmp_path_factory.mktemp(f"bpe{size}"), size)
        for size in (VOCABULARY, LARGE)
    }


def _characters_a_token(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> float:
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return sum(map(len, texts)) / sum(map(len, rows))


def _tokens_each(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], pattern: re.Pattern[str]
) -> float:
    """Mean tokens of what ``pattern`` finds, with the space before it, as inside a sentence."""
    found = [f" {match}" for text in texts for match in pattern.findall(text)]
    rows = tokenizer(found, add_special_tokens=False)["input_ids"]
    return sum(map(len, rows)) / len(rows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_words_and_names_against_four_times_the_vocabulary(
    tokenizers: dict[str, PreTrainedTokenizerFast], texts: list[str]
) -> None:
    measured = {
        name: (
            _characters_a_token(tokenizer, texts),
            _tokens_each(tokenizer, texts, NAME),
            _tokens_each(tokenizer, texts, NUMBER),
        )
        for name, tokenizer in tokenizers.items()
    }
    print(f"\n{'tokenizer':>10}  characters a token  tokens a name  tokens a number")
    for name, (characters, names, numbers) in measured.items():
        print(f"{name:>10}  {characters:18.3f}  {names:13.3f}  {numbers:15.3f}")
    small, large = measured[f"{VOCABULARY:,}"], measured[f"{LARGE:,}"]
    assert small[0] > 0.8 * large[0]  # measured: 3.81 of 4.68
    assert small[1] < 1.65 * large[1]  # measured: 2.63 and 1.65
    assert small[2] == large[2], "numbers are cut into digits at any size"
