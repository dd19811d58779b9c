"""Hub ids: from the cache without a network, and each failure as one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.tiny import copy_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def _put(cache: Path, checkpoint: Path) -> Path:
    """Lay a checkpoint into the cache as the model org/tiny; returns its snapshot."""
    repository = cache / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return copy_checkpoint(checkpoint, repository / "snapshots" / COMMIT)


@pytest.mark.parametrize("options", [{}, {"shard_size": "100KB"}, {"torch_file": True}])
def test_loads_from_the_cache_without_a_network(
    cache: Path, checkpoint: Callable[..., Path], load: Callable[..., Any], options: Any
) -> None:
    _put(cache, checkpoint(**options))
    assert load("org/tiny").source == "org/tiny"


@pytest.mark.usefixtures("cache")
def test_not_in_the_cache(refusal: Callable[..., Exception]) -> None:
    sentence = str(refusal("org/tiny"))
    assert "HF_HUB_OFFLINE is set" in sentence
    assert "; run `hf download org/tiny` on a machine with network access, " in sentence
    assert "or give a local folder" in sentence


def test_cached_without_its_weights(
    cache: Path, checkpoint: Callable[..., Path], refusal: Callable[..., Exception]
) -> None:
    (_put(cache, checkpoint()) / "model.safetensors").unlink()
    assert "is not complete in the local cache" in str(refusal("org/tiny"))


def test_too_big_to_download(
    cache: Path, checkpoint: Callable[..., Path], refusal: Callable[..., Exception]
) -> None:
    snapshot = _put(cache, checkpoint(shard_size="100KB"))
    for shard in snapshot.glob("*.safetensors"):
        shard.unlink()
    assert "is not complete in the local cache" in str(refusal("org/tiny"))
    file = snapshot / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    index["metadata"]["total_size"] = 10**15
    file.write_text(json.dumps(index))
    assert "needs 1000000.0 GB" in str(refusal("org/tiny"))


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        (GatedRepoError, "is gated; ask for access at"),
        (RepositoryNotFoundError, "neither a folder here nor a model on the hub"),
        (RevisionNotFoundError, "has no revision"),
        (LocalEntryNotFoundError, "the hub cannot be reached"),
        (ConnectionError, "the hub cannot be reached"),
        (PermissionError, "could not be fetched (PermissionError)"),
    ],
)
def test_failures_of_the_hub(
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[..., Exception],
    kind: type[Exception],
    fragment: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise kind.__new__(kind)  # those of the hub want a response, which our sentences do not

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("specx.models.hub.snapshot_download", fail)
    assert fragment in str(refusal("org/tiny"))
