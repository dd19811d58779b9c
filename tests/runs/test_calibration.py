"""Picking the retrieval layer once for each pair, and remembering it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.decoding.methods import Pair
from specx.profile import AutoTree, Profile, Settings, TreeSettings, load_profile
from specx.runs import calibration
from specx.runs.calibration import best_layer, measured_layer, score_layers
from specx.runs.pair import load_pair

from .pairs import TEXT, checkpoints, encode, write_profile

WINDOW = 300


class Ear:
    """A listener that remembers the phases."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("profile")
    return load_profile(write_profile(folder, draft_cache={"layer": "auto"}))


@pytest.fixture(scope="module")
def pair(profile: Profile) -> Pair:
    return load_pair(profile, "specextend", torch.device("cpu"))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder of this test's own, not made yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "specx"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The prompts of every measurement; each of them finds layer 0 best."""
    calls: list[Any] = []

    def score(_pair: Pair, _profile: Profile, prompts: Any) -> dict[int, float]:
        calls.append(prompts)
        return {0: 2.0, 1: 1.5}

    monkeypatch.setattr(calibration, "score_layers", score)
    return calls


def layer_for(profile: Profile, pair: Pair, ear: Ear | None = None) -> Any:
    return measured_layer(profile, pair, (ear or Ear()).phase)


def test_measured_once(profile: Profile, pair: Pair, calls: list[Any], cache: Path) -> None:
    first, second = Ear(), Ear()
    assert layer_for(profile, pair, first) == layer_for(profile, pair, second) == 0
    assert len(calls) == 1
    assert len(first.phases) == 1
    assert second.phases == []
    assert list(json.loads((cache / "layers.json").read_text()).values()) == [0]


def test_prompts_fit_the_window(profile: Profile, pair: Pair, calls: list[Any]) -> None:
    layer_for(profile, pair)
    (prompts,) = calls
    assert len(prompts) == calibration.DOCUMENTS
    assert all(0 < len(prompt) <= WINDOW * 3 // 4 for prompt in prompts)


@pytest.mark.parametrize("change", [{"layer": 1}, {"policy": "streaming"}, {"policy": "full"}])
def test_nothing_to_resolve(
    profile: Profile, pair: Pair, calls: list[Any], change: dict[str, Any]
) -> None:
    fixed = profile.changed(draft_cache=change)
    assert layer_for(fixed, pair) is None
    assert calls == []


@pytest.mark.parametrize("role", ["target", "draft"])
def test_another_revision_is_measured_anew(
    profile: Profile, pair: Pair, calls: list[Any], role: str
) -> None:
    layer_for(profile, pair)
    layer_for(profile.changed(**{role: {"revision": "v2"}}), pair)
    assert len(calls) == 2


def test_a_folder_is_known_by_its_resolved_path(
    profile: Profile, pair: Pair, calls: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "model").mkdir()
    layer_for(profile, pair)
    relative = replace(pair, target=replace(pair.target, source="./model"))
    monkeypatch.chdir(here)
    layer_for(profile, relative)
    assert len(calls) == 2
    monkeypatch.chdir(there)
    layer_for(profile, relative)
    assert len(calls) == 3
    absolute = replace(pair, target=replace(pair.target, source=str(there / "model")))
    layer_for(profile, absolute)
    assert len(calls) == 3
    # The pair at hand by another of its names.
    (tmp_path / "link").symlink_to(checkpoints()[0])
    layer_for(profile, replace(pair, target=replace(pair.target, source=str(tmp_path / "link"))))
    assert len(calls) == 3


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[1, 2]", b"null", b'{"key": "two"}']
)
def test_a_garbled_cache_file_is_written_anew(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path, content: bytes
) -> None:
    cache.mkdir()
    (cache / "layers.json").write_bytes(content)
    assert layer_for(profile, pair) == layer_for(profile, pair) == 0
    assert len(calls) == 1


@pytest.mark.parametrize("layer", [99, -1, True, "1", None, 1.0])
def test_a_remembered_layer_that_cannot_be(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path, layer: object
) -> None:
    layer_for(profile, pair)
    file = cache / "layers.json"
    file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), layer)))
    assert layer_for(profile, pair) == 0
    assert len(calls) == 2


def test_what_other_pairs_left_is_kept(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path
) -> None:
    cache.mkdir()
    (cache / "layers.json").write_text('{"other": 7}')
    layer_for(profile, pair)
    assert json.loads((cache / "layers.json").read_text())["other"] == 7
    assert len(calls) == 1


def test_an_unreadable_cache_file(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path
) -> None:
    (cache / "layers.json").mkdir(parents=True)
    assert layer_for(profile, pair) == 0
    assert len(calls) == 1


def test_a_cache_folder_that_cannot_be_made(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path
) -> None:
    cache.write_text("a file is in its place")
    assert layer_for(profile, pair) == layer_for(profile, pair) == 0
    assert len(calls) == 2  # measured each time, and summarized all the same


@pytest.mark.usefixtures("unprivileged")
def test_a_read_only_cache_folder(
    profile: Profile, pair: Pair, calls: list[Any], cache: Path
) -> None:
    cache.mkdir()
    cache.chmod(0o500)
    assert layer_for(profile, pair) == 0
    assert list(cache.iterdir()) == []
    assert len(calls) == 1


def test_the_deepest_of_equal_layers() -> None:
    assert best_layer({0: 1.0, 1: 2.5, 2: 2.5, 3: 2.0}) == 2


def test_every_layer_is_measured(profile: Profile, pair: Pair) -> None:
    scores = score_layers(pair, profile, [tuple(encode(TEXT * 6)[:150])])
    assert list(scores) == [0, 1]
    assert all(1.0 <= length <= profile.tree.depth + 1 for length in scores.values())


def test_layers_are_compared_with_one_tree(
    profile: Profile, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = []

    def decode(_pair: Pair, settings: Settings, *_: Any) -> list[Any]:
        trees.append(settings.tree)
        return []

    monkeypatch.setattr(calibration, "decode", decode)
    score_layers(pair, profile.changed(tree=AutoTree()), [(5, 6, 7)])
    score_layers(pair, profile, [(5, 6, 7)])
    assert trees == [TreeSettings()] * 2 + [profile.tree] * 2
    assert not isinstance(trees[0], AutoTree)
