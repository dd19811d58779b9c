"""The log of a folder: nothing that was noted is lost, and it stays short."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specx.errors import UsageError
from specx.runs import outputs
from specx.runs.outputs import LOG, OutputLog

A, B, C = ({"output": name, "state": "done"} for name in ("x/a.txt", "b\udce9.txt", "c.txt"))


def documents(folder: Path) -> list[str]:
    return sorted(OutputLog(folder).contents().documents)


def files(folder: Path) -> dict[str, list[str]]:
    return OutputLog(folder).contents().files


def test_the_latest_line_about_a_thing_counts(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    for entry in (A, B, {**A, "state": "failed", "error": "x/a.txt is empty\x1b"}):
        log.add(entry)
    for names in ({"a.md": ["1"], "b.md": ["1"]}, {"b.md": []}, {"a.md": ["2"]}):
        log.add({"files": names})
    for read in (log, OutputLog(tmp_path)):
        assert read.contents().documents == {
            "x/a.txt": {**A, "state": "failed", "error": "x/a.txt is empty\x1b"},
            "b\udce9.txt": B,
        }
        assert read.contents().files == {"a.md": ["1", "2"]}


def test_a_torn_last_line_is_ignored_wherever_it_ends(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    log.add(A)
    first = (tmp_path / LOG).read_bytes()
    log.add(B)
    both = (tmp_path / LOG).read_bytes()
    for length in range(len(first), len(both)):
        (tmp_path / LOG).write_bytes(both[:length])
        again, whole = OutputLog(tmp_path), length == len(both) - 1  # all but the line end
        assert ("b\udce9.txt" in again.contents().documents) is whole
        again.add(C)
        names = ["c.txt", "x/a.txt"]
        assert documents(tmp_path) == sorted([*names, "b\udce9.txt"] if whole else names)
        assert sorted(again.contents().documents) == documents(tmp_path)


def test_a_damaged_line_costs_no_other(tmp_path: Path) -> None:
    log = OutputLog(tmp_path)
    log.add(A)
    log.add(B)
    content = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(b"\xff{]\n" + content.replace(b'"done"', b'"dune"', 1))
    assert documents(tmp_path) == ["b\udce9.txt"]


def test_a_full_disk_spoils_only_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, real = OutputLog(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda file, line: real(file, line[:20]))
    with pytest.raises(UsageError, match=r"cannot write .*specx-log\.jsonl: No space left on dev"):
        log.add(A)
    monkeypatch.undo()
    log.add(B)
    assert documents(tmp_path) == ["b\udce9.txt"]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*specx-log\.jsonl: Is a directory"):
        OutputLog(tmp_path).add(A)


def test_writers_lose_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_SPARE_LINES", 5)  # so that it is written anew meanwhile
    names = [f"{number}.md" for number in range(20)]

    def write(name: str) -> None:
        for _ in range(3):
            OutputLog(tmp_path).add({"files": {name: ["1"]}})
            OutputLog(tmp_path).tidy()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, names))
    assert sorted(files(tmp_path)) == sorted(names)
    assert (tmp_path / LOG).read_bytes().count(b"\n") <= 45


def test_it_is_read_on_from_where_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = [], outputs._unsealed
    monkeypatch.setattr(outputs, "_unsealed", lambda lines: read.append(lines) or real(lines))
    log = OutputLog(tmp_path)
    for number in range(20):
        log.add({"files": {f"{number}.md": ["1"]}})
    assert "3.md" in log.contents().files
    assert b"".join(read) == (tmp_path / LOG).read_bytes()  # each line once


def test_a_log_of_few_things_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_SPARE_LINES", 10)
    monkeypatch.setattr(outputs, "_KEPT_HASHES", 4)
    log = OutputLog(tmp_path)
    for number in range(30):
        log.add({"files": {f"{number % 3}.md": [str(number)]}})
        log.add({"output": f"{number % 3}", "state": "done", "time": number})
        log.tidy()
    for name, hashes in files(tmp_path).items():
        last = {"0.md": 27, "1.md": 28, "2.md": 29}[name]
        # What a process that was killed has left may be of several runs ago.
        assert hashes == [str(number) for number in range(last - 9, last + 1, 3)]
    assert {name: each["time"] for name, each in log.contents().documents.items()} == {
        "0": 27,
        "1": 28,
        "2": 29,
    }
    assert (tmp_path / LOG).read_bytes().count(b"\n") <= 22


def test_it_is_not_written_anew_while_another_process_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_SPARE_LINES", 0)
    monkeypatch.setattr(outputs, "_PAUSE", 0)
    log = OutputLog(tmp_path)
    with log._opened() as (_, alone):
        assert alone
        for _ in range(9):
            log.add(A)
            log.tidy()
    assert (tmp_path / LOG).read_bytes().count(b"\n") == 9
    log.tidy()
    assert (tmp_path / LOG).read_bytes().count(b"\n") == 1
    assert documents(tmp_path) == ["x/a.txt"]
