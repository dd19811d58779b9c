"""A published instruction model: SmolLM2 135M Instruct, in the folder SPECX_SMOLLM2 names."""

import json
import os
from pathlib import Path

import pytest

from specx.bench.cases import generated_documents
from specx.cli.main import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
WORDS = 80


@pytest.fixture(scope="module")
def model() -> str:
    folder = os.environ.get("SPECX_SMOLLM2")
    if not folder:
        pytest.skip("SPECX_SMOLLM2 does not name the model's folder")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("real") / "report.txt"
    (document,) = generated_documents(1, 1024, seed=4)
    file.write_text("\n\n".join(paragraph.text for paragraph in document.paragraphs))
    return file


def repeated(text: str) -> float:
    """The share of 4-grams that stood before."""
    words = text.lower().split()
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams)


def summarized(
    capsys: pytest.CaptureFixture[str], report: Path, model: str, *options: str
) -> dict[str, object]:
    assert run(["summarize", str(report), "--model", model, "--json", *options]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_summary_ends_with_its_words_and_repeats_little(
    capsys: pytest.CaptureFixture[str], report: Path, model: str
) -> None:
    found = summarized(capsys, report, model, "--words", str(WORDS))
    text = str(found["summary"])
    assert found["finish_reasons"] in (["end"], ["words"])
    assert len(text.split()) <= 2 * WORDS  # one sentence over
    assert repeated(text) < 0.15


def test_plain_decoding_writes_what_transformers_does(
    capsys: pytest.CaptureFixture[str], report: Path, model: str
) -> None:
    """The same tokens in every method, with every setting on as well."""
    every = ["--temperature", "0.7", "--set", "generation.top_p=0.9"]
    every += ["--set", "generation.min_p=0.02"]
    for options in ([], every):
        found = summarized(capsys, report, model, "--words", "40", "--check-lossless", *options)
        lossless = found["lossless"]
        assert isinstance(lossless, dict)
        assert lossless["identical"]
