"""The pair that ships with specx, on the example document: what a newcomer's first command does."""

import json
from pathlib import Path
from typing import Any

import pytest

import specx.models.embedded
from specx.cli.main import run

EXAMPLE = Path(__file__).parent.parent / "docs" / "example" / "report.pdf"
MOST_BYTES = 40_000_000  # of all weights that ship


def test_the_weights_are_small_enough_to_ship() -> None:
    (folder,) = map(Path, specx.models.embedded.__path__)
    weights = list(folder.rglob("*.safetensors"))
    assert {path.parent.name for path in weights} == {"target", "draft", "head", "reader"}
    assert sum(path.stat().st_size for path in weights) <= MOST_BYTES


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """Exit code and report of ``specx summarize``, compared with plain decoding."""
    report = tmp_path_factory.mktemp("digest") / "report.json"
    options = [
        "--set",
        "fallback.below=null",
        "--check-lossless",
        "--quiet",
        "--report",
        str(report),
    ]
    code = run(["summarize", str(EXAMPLE), *options])
    return code, json.loads(report.read_text())


def test_the_digest_is_what_plain_decoding_writes(digest: tuple[Any, dict[str, Any]]) -> None:
    code, report = digest
    assert code == 0
    expected = {"identical": True, "position": None, "logit_gap": None, "reference": None}
    assert report["lossless"] == expected


def test_sentences_are_cited_in_order_and_verbatim(
    digest: tuple[Any, dict[str, Any]],
) -> None:
    _, report = digest
    citations = report["citations"]
    assert len(citations) == 22
    paragraphs = [citation["paragraph"] for citation in citations]
    assert paragraphs == sorted(paragraphs)
    pages = [citation["page"] for citation in citations]
    assert pages == sorted(pages)
    assert all(1 <= page <= report["input"]["pages"] == 6 for page in pages)
    text = EXAMPLE.with_name("report_source.txt").read_text()
    assert all(citation["sentence"] in text for citation in citations)


def test_the_digest_is_the_one_in_the_documentation(digest: tuple[Any, dict[str, Any]]) -> None:
    _, report = digest
    assert report["summary"].strip() == EXAMPLE.with_name("digest.md").read_text().strip()


def test_drafts_are_accepted(digest: tuple[Any, dict[str, Any]]) -> None:
    _, report = digest
    assert report["acceptance_length"] > 2
    assert report["steps"] < report["generated_tokens"] / 2


def test_a_head_writes_the_same_digest(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = [
        "--set",
        "fallback.below=null",
        "--quiet",
        "--report",
        str(report),
        "--profile",
        "mini-eagle3",
    ]
    assert run(["summarize", str(EXAMPLE), *options]) == 0
    found = json.loads(report.read_text())
    assert found["summary"].strip() == EXAMPLE.with_name("digest.md").read_text().strip()
    assert found["acceptance_length"] > 3
