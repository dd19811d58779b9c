"""Models in folders: which are meant, and which are not there."""

from pathlib import Path

import pytest

from specx.errors import ProfileError
from specx.profile import check_profile, load_profile
from specx.profile.load import model_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a profile, which is not the current one; both have a folder ``org/model``."""
    for folder in ("here", "home"):
        (tmp_path / folder / "org" / "model").mkdir(parents=True)
        (tmp_path / folder / "org" / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def write(home: Path, target: str, draft: str = "embedded:draft") -> str:
    path = home / "p.yaml"
    path.write_text(
        f"name: p\ntarget:\n  model: {target}\ndraft: {{model: {draft}, trained_context: 2048}}\n"
    )
    return str(path)


@pytest.mark.parametrize("written", ["org/model", "./org/model", "../home/org/model"])
def test_paths_count_from_the_profiles_own_folder(home: Path, written: str) -> None:
    model = Path(load_profile(write(home, written)).target.model)
    assert model.is_absolute()
    assert model.resolve() == home / "org" / "model"


def test_a_profile_beside_the_user_has_absolute_paths(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "./org/model", draft="org/model")
    monkeypatch.chdir(home)
    profile = load_profile("p.yaml")
    assert profile.draft is not None
    assert {profile.target.model, profile.draft.model} == {str(home / "org" / "model")}


@pytest.mark.parametrize(
    "model",
    [
        "org/other",
        "gpt2",
        "embedded:target",
        "org/other:Q4_K_M",
        "ollama:qwen3:4b",
        "lmstudio:org/a",
    ],
)
def test_other_models_stay_as_they_are(home: Path, model: str) -> None:
    assert load_profile(write(home, model)).target.model == model


def test_a_gguf_file_is_a_path(home: Path) -> None:
    (home / "m.gguf").write_text("")
    assert model_folder("m.gguf", home) == home / "m.gguf"
    (home / "lies").mkdir()
    (home / "lies" / "m.gguf").write_text("")
    check_profile(write(home, "m.gguf", draft="./lies"))


def test_home_is_understood(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert model_folder("~/org/model", Path("elsewhere")) == home / "org" / "model"


def test_folders_that_are_not_there(home: Path) -> None:
    (home / "empty").mkdir()
    (home / "file").write_text("")
    check_profile(write(home, "org/model", draft="org/draft"))
    for written, sentence in {
        "./no": f"names the folder {home}/no, which does not exist",
        "./file": f"is the file {home}/file; name the folder that holds config.json, or a GGUF "
        "file",
        "empty": f"names the folder {home}/empty, which holds no config.json",
    }.items():
        path = write(home, written, draft="./nowhere")
        with pytest.raises(ProfileError) as caught:
            check_profile(path)
        assert str(caught.value) == (
            f"the profile {path} has 2 problems:\n"
            f"  line 3: `target.model` {sentence}\n"
            f"  line 4: `draft.model` names the folder {home}/nowhere, which does not exist"
        )
