"""Hints that are told once on a machine."""

from pathlib import Path

import pytest

from specx.cache_folder import cache_folder, is_first_time


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_hint_has_one_first_time() -> None:
    assert [is_first_time("one"), is_first_time("one"), is_first_time("two")] == [True, False, True]
    assert {path.name for path in (cache_folder() / "hints").iterdir()} == {"one", "two"}


@pytest.mark.parametrize("place", ["specx", "specx/hints"])
def test_where_nothing_can_be_noted_each_time_is_the_first(home: Path, place: str) -> None:
    (home / place).parent.mkdir(exist_ok=True)
    (home / place).write_text("in the way")
    assert [is_first_time("one"), is_first_time("one")] == [True, True]
