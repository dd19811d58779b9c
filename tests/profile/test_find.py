"""Profiles by name and by path: those that are shipped, and the user's own."""

from pathlib import Path

import pytest

from specx.errors import ProfileError
from specx.profile import (
    DigestPrompt,
    list_profiles,
    load_profile,
    profile_path,
    shipped_folder,
    user_folder,
)
from tests.profile.examples import MINIMAL

ROOT = Path(__file__).parents[2]
SHIPPED = [
    "llama-3.1-8b",
    "llama-3.1-8b-eagle3",
    "longchat-7b-68m",
    "mini",
    "mini-eagle3",
    "qwen2.5-3b",
    "qwen3-1.7b-gguf",
    "qwen3-14b",
    "qwen3-14b-eagle3",
    "qwen3-14b-gguf",
    "qwen3-32b",
    "qwen3-32b-eagle3",
    "qwen3-32b-gguf",
    "qwen3-4b-gguf",
    "qwen3-8b",
    "qwen3-8b-eagle3",
    "qwen3-8b-gguf",
    "smollm2",
    "vicuna-7b-68m",
]


@pytest.fixture(autouse=True)
def _own_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_shipped_profiles_load_under_their_own_names() -> None:
    paths = list_profiles()
    assert list(paths) == SHIPPED
    for name, path in paths.items():
        assert path.parent == shipped_folder()
        assert load_profile(name).name == name


def test_mini_is_the_embedded_pair() -> None:
    mini = load_profile("mini")
    assert isinstance(mini.prompt, DigestPrompt)
    assert (mini.target.model, mini.target.dtype) == ("embedded:target", "float32")
    assert mini.draft is not None
    assert (mini.draft.model, mini.draft.trained_context) == ("embedded:draft", 1024)
    assert mini.draft_cache.layer == 5


def test_the_68m_profiles_have_the_papers_parameters() -> None:
    for name in ("vicuna-7b-68m", "longchat-7b-68m"):
        profile = load_profile(name)
        assert (profile.tree.nodes, profile.tree.depth, profile.tree.threshold) == (50, 10, 0.7)
        cache = profile.draft_cache
        assert (cache.chunk, cache.top_k, cache.every, cache.layer) == (32, 32, 4, "last")


def test_unknown_name() -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile("vicuna-7b")
    assert str(caught.value) == (
        f"there is no profile 'vicuna-7b'; choose {', '.join(SHIPPED)}, or give the path of a YAML "
        "file (for a model, use --model); did you mean 'vicuna-7b-68m'?"
    )


def test_users_profile_hides_a_shipped_one() -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "mini.yaml").write_text(MINIMAL)
    (folder / "other.yml").write_text(MINIMAL)
    (folder / "notes.txt").write_text("no profile")
    folders = {name: path.parent for name, path in list_profiles().items()}
    assert folders == dict.fromkeys(SHIPPED, shipped_folder()) | {"mini": folder, "other": folder}
    assert load_profile("mini").name == "small"
    assert profile_path("other") == folder / "other.yml"


def test_a_path_is_read_and_a_relative_config_home_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_profile(str(file)).name == "small"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder() == tmp_path / ".config" / "specx" / "profiles"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cannot read the profile .*No such file"):
        load_profile(str(tmp_path / "absent.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(ProfileError, match="is not UTF-8 text"):
        load_profile(str(tmp_path / "latin.yaml"))


def test_shipped_folder_is_the_checkouts_own() -> None:
    assert shipped_folder() == ROOT / "profiles"
