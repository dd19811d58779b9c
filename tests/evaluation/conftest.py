"""Evaluation on real documents: GovReport, in the folder that SPECX_GOVREPORT names.

The folder holds ``govreport_4K.jsonl``, ``govreport_8K.jsonl`` and ``govreport_16K.jsonl``, twelve
documents each. Nothing is trained or tuned on them.
"""

import os
from pathlib import Path

import pytest
import torch

from specx.batch.pair import load_pair
from specx.decoding.methods import Pair
from specx.documents.document import Document
from specx.documents.jsonl import read_jsonl
from specx.profile import Profile, load_profile


@pytest.fixture(scope="session")
def govreport() -> dict[str, list[Document]]:
    """Documents by size class."""
    folder = os.environ.get("SPECX_GOVREPORT")
    if not folder:
        pytest.skip("SPECX_GOVREPORT does not name the folder of the evaluation documents")
    return {
        size: read_jsonl(str(Path(folder) / f"govreport_{size}.jsonl"))
        for size in ("4K", "8K", "16K")
    }


@pytest.fixture(scope="session")
def mini() -> Profile:
    """The default profile without fallback, as measurements need it."""
    profile = load_profile("mini")
    fallback = profile.fallback.model_copy(update={"below": None})
    return profile.model_copy(update={"fallback": fallback})


@pytest.fixture(scope="session")
def pair(mini: Profile) -> Pair:
    return load_pair(mini, "specextend", torch.device("cpu"))
