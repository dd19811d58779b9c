"""Files that specx may replace, and those that it may not."""

import os
from pathlib import Path

import pytest

from specx.errors import UsageError
from specx.runs import outputs
from specx.runs.outputs import LOG, Outputs, is_own, log_of


def test_others_files_are_not(tmp_path: Path) -> None:
    path = tmp_path / "sum.md"
    path.write_text("precious\n")
    with pytest.raises(UsageError) as caught:
        Outputs().check(path)
    assert str(caught.value) == (
        f"{path} exists and specx did not write it; choose another place, or overwrite it with "
        "--force"
    )
    with pytest.raises(UsageError):
        Outputs().write({path: "Two.\n"})
    assert path.read_text() == "precious\n"
    Outputs(force=True).write_text(path, "One.\n")
    Outputs().write_text(path, "Two.\n")
    assert path.read_text() == "Two.\n"


def test_a_file_that_was_changed_is_its_users(tmp_path: Path) -> None:
    path = tmp_path / "sum.md"
    Outputs().write_text(path, "One.\n")
    path.write_text("One, in my words.\n")
    with pytest.raises(UsageError, match="was changed since specx wrote it; choose another place"):
        Outputs().write_text(path, "Two.\n")
    assert path.read_text() == "One, in my words.\n"


def test_an_empty_file_holds_nothing_to_lose(tmp_path: Path) -> None:
    path = tmp_path / "sum.md"
    path.touch()
    Outputs().write_text(path, "One.\n")
    assert path.read_text() == "One.\n"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "sum.md").mkdir()
    with pytest.raises(UsageError, match="exists and specx did not write it"):
        Outputs().check(tmp_path / "sum.md")
    with pytest.raises(UsageError, match=r"cannot write .*: File name too long"):
        Outputs().check(tmp_path / ("n" * 300))


def test_one_log_for_all_files_of_a_folder(tmp_path: Path) -> None:
    writer = Outputs(tmp_path)
    for name in ("x/deep/a.md", "b\udce9.md"):
        writer.write_text(tmp_path / name, "One.\n")
    outside = tmp_path.parent / "outside"
    writer.write({outside / "r.json": "{}"})
    assert sorted(log_of(tmp_path).contents().files) == ["b\udce9.md", "x/deep/a.md"]
    assert list(log_of(outside).contents().files) == ["r.json"]


def test_a_file_is_known_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Outputs(tmp_path / "OUT").write_text(tmp_path / "OUT/x/a.md", "One.\n")
    monkeypatch.chdir(tmp_path / "OUT")
    Outputs().write_text(Path("x/a.md"), "Two.\n")
    monkeypatch.chdir(tmp_path)
    Outputs(Path("OUT")).write_text(Path("OUT/x/a.md"), "Three.\n")
    assert Path("OUT/x/a.md").read_text() == "Three.\n"


@pytest.mark.parametrize("content", ["", "[]", '{"files": 3}', '{"files": {"a.md": null}}', "\xff"])
def test_a_damaged_log_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / LOG).write_text(content)
    path = tmp_path / "a.md"
    path.write_text("precious\n")
    with pytest.raises(UsageError):
        Outputs().check(path)
    Outputs(force=True).write_text(path, "One.\n")
    Outputs().write_text(path, "Two.\n")


def test_killed_between_log_and_file_the_old_one_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "a.md", tmp_path / "b.md"
    Outputs().write({path: "One.\n", other: "One.\n"})
    real = outputs.write_bytes_atomic

    def dies_at_second_file(file: Path, content: bytes) -> None:
        if file == other:
            raise KeyboardInterrupt
        real(file, content)

    monkeypatch.setattr(outputs, "write_bytes_atomic", dies_at_second_file)
    with pytest.raises(KeyboardInterrupt):
        Outputs().write({path: "Two.\n", other: "Two.\n"})
    monkeypatch.undo()
    assert [Outputs().is_complete(each) for each in (path, other)] == [True, False]
    Outputs().write({path: "Three.\n", other: "Three.\n"})
    assert other.read_text() == "Three.\n"
    assert [Outputs().is_complete(each) for each in (path, other)] == [True, True]


def test_what_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    assert not Outputs().is_complete(path)
    path.write_text("precious\n")
    assert not Outputs().is_complete(path)
    Outputs(force=True).write_text(path, "One.\n")
    assert Outputs().is_complete(path)
    path.write_text("One, in my words.\n")
    assert not Outputs().is_complete(path)


def test_only_its_own_files_are_removed(tmp_path: Path) -> None:
    mine, yours = tmp_path / "a.md", tmp_path / "b.md"
    Outputs().write_text(mine, "One.\n")
    yours.write_text("precious\n")
    for path in (mine, yours, tmp_path / "no.md"):
        Outputs().remove(path)
    assert [path.exists() for path in (mine, yours)] == [False, True]


def test_a_file_that_it_removed_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a.md"
    outputs_ = Outputs(tmp_path)
    assert not outputs_.has_written(path)
    outputs_.write_text(path, "One.\n")
    assert Outputs().has_written(path)
    outputs_.remove(path)
    assert not Outputs().has_written(path)
    outputs_.write_text(path, "Two.\n")
    assert Outputs().is_complete(path)


def test_a_log_that_cannot_be_written_stops_no_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.partial.md"
    Outputs(tmp_path).write_text(path, "One.\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "_append", full)
    Outputs(tmp_path).remove(path)
    assert not path.exists()


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        Outputs().write_text(tmp_path / name, "One.\n")
    content = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(content[:-5])
    assert not Outputs().is_complete(tmp_path / "b.md")
    Outputs().write_text(tmp_path / "c.md", "One.\n")
    assert sorted(log_of(tmp_path).contents().files) == ["a.md", "c.md"]
    assert [Outputs().is_complete(tmp_path / f"{name}.md") for name in "abc"] == [True, False, True]


def test_files_are_known_as_specxs_until_somebody_changes_them(tmp_path: Path) -> None:
    Outputs(tmp_path).write_text(tmp_path / "x" / "a.md", "A summary.\n")
    Outputs(tmp_path).write_text(tmp_path / "b.md", "A summary.\n")
    (tmp_path / "b.md").write_text("A better one.\n")
    (tmp_path / "c.md").write_text("Notes.\n")
    found = filter(is_own, (tmp_path / name for name in ("x/a.md", "b.md", "c.md")))
    assert list(found) == [tmp_path / "x" / "a.md"]


def test_names_are_flushed_as_contents_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[int, int]] = []

    def fsync(file: int) -> None:
        found = os.fstat(file)
        flushed.append((found.st_dev, found.st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "x" / "a.md"
    Outputs(tmp_path).write_text(path, "new")
    last = {(found.st_dev, found.st_ino) for found in (tmp_path.stat(), path.parent.stat())}
    assert set(flushed[-2:]) == last
    assert (path.stat().st_dev, path.stat().st_ino) in flushed
