"""Checkpoints on disk for the tests of this folder, and an attention to load them with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specx.errors import SpecxError
from specx.models.load import load_model
from specx.models.loaded import LoadedModel, ModelSpec, Role
from tests.tiny import copy_checkpoint, make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``checkpoint("qwen3", num_hidden_layers=4)``: a folder, made once per set of arguments."""
    made: dict[str, Path] = {}

    def make(family: str = "llama", **options: Any) -> Path:
        key = repr((family, sorted(options.items(), key=str)))
        if key not in made:
            made[key] = make_checkpoint(tmp_path_factory.mktemp(family), family, **options)
        return made[key]

    return make


@pytest.fixture
def broken(checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """``broken(hidden_size=65)``: a copy with edited config keys; a value of ``...`` removes one.

    ``broken(source=folder)`` copies another checkpoint than the plain Llama.
    """

    def make(source: Path | None = None, **config: Any) -> Path:
        folder = copy_checkpoint(source or checkpoint(), tmp_path / "broken")
        file = folder / "config.json"
        merged = {**json.loads(file.read_text()), **config}
        file.write_text(json.dumps({k: v for k, v in merged.items() if v is not ...}))
        return folder

    return make


@pytest.fixture
def load() -> Callable[..., LoadedModel]:
    def do(model: Path | str, role: Role = "target", dtype: str = "auto", **kw: Any) -> LoadedModel:
        return load_model(ModelSpec(str(model), dtype=dtype), "cpu", role, **kw)

    return do


@pytest.fixture
def refusal(
    load: Callable[..., LoadedModel], capfd: pytest.CaptureFixture[str]
) -> Callable[..., SpecxError]:
    """The error of a load that must fail: one sentence, and nothing else on the terminal."""

    def do(model: Path | str, role: str = "target", **kw: Any) -> SpecxError:
        capfd.readouterr()
        with pytest.raises(SpecxError) as caught:
            load(model, role, **kw)
        sentence = str(caught.value)
        assert sentence.startswith(f"The {role} {model} ")
        assert sentence.endswith(".")
        assert ". " not in sentence
        assert "\n" not in sentence
        assert "Traceback" not in sentence
        assert capfd.readouterr() == ("", "")
        return caught.value

    return do
