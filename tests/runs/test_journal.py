"""The journal of a job: it loses nothing that was noted, and belongs to one run at a time."""

import os
import time
from pathlib import Path, PurePath

import pytest

from specx.errors import UsageError
from specx.runs.journal import Journal, JournalError
from specx.runs.shard import WHOLE, Shard

A, B = PurePath("x/a.txt"), PurePath("b\udce9.txt")
INPUT = {"path": "/x/a.txt", "size": 3, "mtime_ns": 7}
NAME = ".specx-journal.jsonl"


def test_a_document_is_done_with_the_same_input_and_settings(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "s")
    journal.done(A, INPUT)
    journal.done(B, {"sha256": "b"})
    assert not journal.is_done(A, INPUT)  # it tells of earlier runs
    journal.close()
    later = Journal(tmp_path, "s")
    assert later.is_done(A, INPUT)
    assert later.is_done(B, {"sha256": "b"})
    assert not later.is_done(A, {**INPUT, "mtime_ns": 8})
    assert not later.is_done(A, None)
    assert not later.is_done(PurePath("c.txt"), INPUT)
    later.close()
    assert not Journal(tmp_path, "other").is_done(A, INPUT)


def test_the_latest_entry_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "s")
    journal.done(A, INPUT)
    journal.failed(A, INPUT, "x/a.txt is empty\x1b")
    journal.failed(B, None, "no")
    journal.done(B, INPUT)
    later = Journal(tmp_path, "s")
    assert not later.is_done(A, INPUT)
    assert later.is_done(B, INPUT)


def test_a_torn_last_line_is_ignored_wherever_it_ends(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "s")
    journal.done(A, INPUT)
    first = (tmp_path / NAME).read_bytes()
    journal.done(B, INPUT)
    both = (tmp_path / NAME).read_bytes()
    journal.close()
    for length in range(len(first), len(both)):
        (tmp_path / NAME).write_bytes(both[:length])
        again = Journal(tmp_path, "s", alone=True)
        assert again.is_done(A, INPUT)
        assert again.is_done(B, INPUT) == (length == len(both) - 1)  # all but the line end
        again.done(PurePath("c.txt"), INPUT)
        again.close()
        last = Journal(tmp_path, "s")
        assert last.is_done(A, INPUT)
        assert last.is_done(PurePath("c.txt"), INPUT)
        last.close()


def test_a_damaged_line_costs_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "s")
    journal.done(A, INPUT)
    journal.done(B, INPUT)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(b"\xff{]\n" + content.replace(b'"done"', b'"dune"', 1))
    later = Journal(tmp_path, "s")
    assert not later.is_done(A, INPUT)
    assert later.is_done(B, INPUT)


def test_a_full_disk_spoils_only_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "s")
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, line: real(file, line[:20]))
    with pytest.raises(JournalError, match="No space left on device; the run ends here, and --res"):
        journal.done(A, INPUT)
    monkeypatch.undo()
    journal.done(B, INPUT)
    later = Journal(tmp_path, "s")
    assert not later.is_done(A, INPUT)
    assert later.is_done(B, INPUT)


def test_one_run_at_a_time_may_resume(tmp_path: Path) -> None:
    shared, also = Journal(tmp_path, "s"), Journal(tmp_path, "s")
    with pytest.raises(UsageError) as caught:
        Journal(tmp_path, "s", alone=True)
    assert str(caught.value) == (
        f"another run of specx is working with {tmp_path / NAME}; wait for its end, or choose "
        "another folder or shard"
    )
    shared.close()
    also.close()
    alone = Journal(tmp_path, "s", alone=True)
    for wants in (True, False):
        with pytest.raises(UsageError, match="another run"):
            Journal(tmp_path, "s", alone=wants)
    Journal(tmp_path, "s", Shard(1, 2), alone=True)
    alone.close()
    Journal(tmp_path, "s", alone=True)


def test_each_shard_writes_its_own_and_reads_all(tmp_path: Path) -> None:
    first, second = (Journal(tmp_path, "s", Shard(i, 2), alone=True) for i in (1, 2))
    first.done(A, INPUT)
    second.failed(A, INPUT, "later")
    second.done(B, INPUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".specx-journal-1-of-2.jsonl",
        ".specx-journal-2-of-2.jsonl",
    ]
    later = Journal(tmp_path, "s")
    assert not later.is_done(A, INPUT)
    assert later.is_done(B, INPUT)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*specx-journal\.jsonl: Is a directory"):
        Journal(tmp_path, "s")


def test_the_order_of_runs_does_not_depend_on_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 2e9
    monkeypatch.setattr(time, "time", lambda: now)
    for shard in (Shard(1, 2), Shard(2, 2), WHOLE, Shard(3, 4)):
        journal = Journal(tmp_path, "s", shard)
        journal.failed(A, INPUT, "no")
        journal.done(B, INPUT)
        journal.close()
        now -= 1e8  # the clock was set back
    last = Journal(tmp_path, "s")
    last.done(A, INPUT)
    last.close()
    assert Journal(tmp_path, "s", Shard(1, 3)).is_done(A, INPUT)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_that_is_gone_notes_nothing(tmp_path: Path, replaced: bool) -> None:
    journal = Journal(tmp_path, "s")
    journal.done(A, INPUT)
    journal.check()
    (tmp_path / NAME).unlink()
    if replaced:
        Journal(tmp_path, "s").close()
    for note in (journal.check, lambda: journal.done(B, INPUT)):
        with pytest.raises(JournalError, match="is gone or was replaced while specx worked"):
            note()
