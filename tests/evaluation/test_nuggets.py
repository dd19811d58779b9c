"""What digests say of what a reader needs, in the folder that SPECX_NUGGETS names.

The folder holds documents and for each a ``NAME.nuggets.json``: ``{"file": …, "kind": …,
"nuggets": [{"says": …, "vital": true, "any": [expression, …]}, …]}``, the facts that somebody who
has to know the document would demand, written before any digest was seen. A nugget is found if two
sentences in a row of the digest match one of its expressions. Nothing is trained on such a folder.
"""

import json
import os
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specx.documents.document import Document
from specx.documents.jsonl import require_documents
from specx.documents.prose import is_sentence
from specx.documents.read import read_documents
from specx.errors import SpecxError
from specx.prompts.choice import choose
from specx.prompts.features import Vectors
from specx.prompts.quotable import quotable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def marked() -> list[tuple[Document | None, list[dict[str, Any]]]]:
    folder = os.environ.get("SPECX_NUGGETS")
    if not folder:
        pytest.skip("SPECX_NUGGETS does not name a folder of documents with nuggets")
    found: list[tuple[Document | None, list[dict[str, Any]]]] = []
    for path in sorted(Path(folder).glob("*.nuggets.json")):
        record = json.loads(path.read_text())
        try:
            (document,) = require_documents(read_documents(str(Path(folder) / record["file"])))
        except SpecxError:
            document = None  # a document that is refused says nothing
        found.append((document, record["nuggets"]))
    return found


def ours(document: Document, count: int) -> list[str]:
    found = quotable(document, count)
    chosen = choose(document.paragraphs, found, [1] * len(found), count=count, room=10**9)
    return [found[number].text for number in chosen]


def lead(document: Document, count: int) -> list[str]:
    texts = [each.text for each in quotable(document, count)]
    return [each for each in texts if is_sentence(each)][:count]


def lexrank(document: Document, count: int) -> list[str]:
    """The sentences that are most like others, by PageRank (Erkan and Radev 2004)."""
    texts = [each.text for each in quotable(document, count)]
    rows = Vectors.of(texts).rows
    near = (rows @ rows.T > 0.1).astype(float)
    near /= near.sum(1, keepdims=True) + 1e-9
    rank = np.full(len(texts), 1 / len(texts))
    for _ in range(50):
        rank = 0.15 / len(texts) + 0.85 * (near.T @ rank)
    return [texts[number] for number in sorted(np.argsort(-rank)[:count].tolist())]


def shares(digest: Sequence[str], nuggets: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """The shares of the vital nuggets, and of all, that a digest tells."""
    pairs = [*digest, *(" ".join(pair) for pair in pairwise(digest))]
    told = [
        any(re.search(each, text, re.IGNORECASE) for each in nugget["any"] for text in pairs)
        for nugget in nuggets
    ]
    vital = [is_told for is_told, nugget in zip(told, nuggets, strict=True) if nugget["vital"]]
    return statistics.mean(vital), statistics.mean(told)


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_digests_tell_more_of_what_is_vital(
    count: int, marked: list[tuple[Document | None, list[dict[str, Any]]]]
) -> None:
    means = {}
    for method in (ours, lead, lexrank):
        rows = []
        for document, nuggets in marked:
            try:
                rows.append(shares(method(document, count) if document else [], nuggets))
            except SpecxError:
                rows.append((0.0, 0.0))
        means[method.__name__] = tuple(map(statistics.mean, zip(*rows, strict=True)))
    for name, (vital, every) in means.items():
        print(f"\n{count} sentences, {name}: vital {vital:.3f}, all {every:.3f}", end="")
    assert means["ours"][0] > max(means["lead"][0], means["lexrank"][0])
