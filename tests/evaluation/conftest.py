"""Evaluation on real documents: GovReport, in the folder that SPECX_GOVREPORT names.

The folder holds ``govreport_4K.jsonl``, ``govreport_8K.jsonl`` and ``govreport_16K.jsonl``, twelve
documents each. Nothing is trained or tuned on them.
"""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.documents.document import Document
from specx.documents.jsonl import require_documents
from specx.documents.read import read_documents
from specx.profile import Profile, load_profile
from specx.records import PrefillProgress
from specx.runs.pair import load_pair


@pytest.fixture(scope="session")
def govreport() -> dict[str, list[Document]]:
    """Documents by size class."""
    folder = os.environ.get("SPECX_GOVREPORT")
    if not folder:
        pytest.skip("SPECX_GOVREPORT does not name the folder of the evaluation documents")
    return {
        size: require_documents(read_documents(str(Path(folder) / f"govreport_{size}.jsonl")))
        for size in ("4K", "8K", "16K")
    }


@pytest.fixture(scope="session")
def references(govreport: dict[str, list[Document]]) -> dict[str, str]:
    """Reference summaries by document name."""
    folder = Path(os.environ["SPECX_GOVREPORT"])
    found = {}
    for size in govreport:
        name = str(folder / f"govreport_{size}.jsonl")
        for line in Path(name).read_text().splitlines():
            record = json.loads(line)
            found[f"{name}#{record['id']}"] = record["summary"]
    return found


@pytest.fixture(scope="session")
def mini() -> Profile:
    """The default profile without fallback, as measurements need it."""
    profile = load_profile("mini")
    fallback = profile.fallback.model_copy(update={"below": None})
    return profile.model_copy(update={"fallback": fallback})


@pytest.fixture(scope="session")
def pair(mini: Profile) -> Pair:
    return load_pair(mini, "specextend", torch.device("cpu"))


@pytest.fixture
def shared_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a prompt once for all methods that decode it one after the other.

    The target's prefill is the same for every method; reading 20,000 tokens four times would be
    most of the time. Start with the method that keeps queries of a layer.
    """
    read = Target.prefill
    kept: dict[str, Any] = {}

    def prefill(target: Target, prompt: Tensor) -> Iterator[tuple[PrefillProgress, Tensor]]:
        rows = len(prompt)
        if "prompt" in kept and torch.equal(kept["prompt"], prompt):
            target.cache.storage[:, :, :, :rows] = kept["rows"]
            target.cache.commit(rows)
            target.last_row.copy_(kept["last_row"])
            if target.retrieval is not None and kept["retrieval"] is not None:
                assert target.retrieval.layer == kept["retrieval"].layer
                target.retrieval.queries.copy_(kept["retrieval"].queries)
                target.retrieval.lse.copy_(kept["retrieval"].lse)
            yield PrefillProgress("target", rows, rows), kept["logits"]
            return
        for progress, logits in read(target, prompt):
            kept["logits"] = logits
            yield progress, logits
        kept.update(
            prompt=prompt,
            rows=target.cache.storage[:, :, :, :rows].clone(),
            last_row=target.last_row.clone(),
            retrieval=copy.deepcopy(target.retrieval),
        )

    monkeypatch.setattr(Target, "prefill", prefill)
