"""The options of a whole job, and what makes two runs the same job."""

import io
import json
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest

from specx.documents.read import ReadOptions
from specx.profile import Profile, load_profile
from specx.runs.changes import changes_since
from specx.runs.job import Earlier, JobOptions, settings_of
from specx.runs.results import Destination, Results
from specx.runs.shard import Shard
from tests.reports.examples import make_report

MINI = load_profile("mini")
A = PurePath("a.txt")
INPUT = {"path": "/a.txt", "size": 3, "mtime_ns": 7}


@pytest.mark.parametrize(("timeout", "limit"), [(None, 120), (5.0, 5), (500.0, 120)])
def test_reading_takes_no_longer_than_a_document_may(timeout: float | None, limit: float) -> None:
    job = JobOptions(timeout=timeout, shard=Shard(1, 2))
    reading = job.reading(ReadOptions(pages="1-3"), lambda *_: None, lambda *_: False)
    assert (reading.options.time_limit_s, reading.options.pages) == (limit, "1-3")
    assert reading.shard == Shard(1, 2)


def settings(**options: Any) -> str:
    return settings_of(MINI, "plain", ReadOptions(**options), check=False)


def test_settings_are_those_that_change_results() -> None:
    same = settings()
    assert settings(password="secret", time_limit_s=5) == same
    others = [
        settings(pages="1-3"),
        settings(field="body"),
        settings(everything=True),
        settings(ocr=True),
        settings_of(MINI, "lookup", ReadOptions(), check=False),
        settings_of(MINI, "plain", ReadOptions(), check=True),
        settings_of(
            MINI.changed(generation={"max_new_tokens": 9}), "plain", ReadOptions(), check=False
        ),
    ]
    assert len({same, *others}) == 8


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_what_is_done_already(tmp_path: Path, resume: bool, skip: bool) -> None:
    destination = Destination(io.StringIO(), out=tmp_path)
    with Earlier(JobOptions(), destination, "s") as first:
        assert first.journal is not None
        Results(destination, headings=False).done(make_report(), A, 0)
        first.journal.done(A, INPUT)
    options = JobOptions(resume=resume, skip_existing=skip)
    with Earlier(options, destination, "s") as later:
        assert later.is_done(A, INPUT) is (resume or skip)
        assert later.is_done(A, {**INPUT, "size": 4}) is skip
        (tmp_path / "a.txt.md").write_text("In my words.\n")
        assert later.is_done(A, INPUT) is resume
        (tmp_path / "a.txt.json").unlink()
        assert not later.is_done(A, INPUT)


def test_settings_that_changed_are_told_once(tmp_path: Path) -> None:
    destination = Destination(io.StringIO(), out=tmp_path)
    with Earlier(JobOptions(), destination, "s") as first:
        assert first.journal is not None
        for each in (A, PurePath("b.txt")):
            Results(destination, headings=False).done(make_report(), each, 0)
            first.journal.done(each, INPUT)
    told: list[list[Path]] = []
    with Earlier(JobOptions(resume=True), destination, "t", told.append) as later:
        assert not later.is_done(PurePath("new.txt"), INPUT)
        assert not later.is_done(A, {**INPUT, "size": 4})  # it changed itself
        assert told == []
        assert not later.is_done(A, INPUT)
        assert not later.is_done(PurePath("b.txt"), INPUT)
    assert told == [[tmp_path / "a.txt.json", tmp_path / "a.txt.html"]]


def test_changes_since_a_report(tmp_path: Path) -> None:
    profile = load_profile("qwen3-8b")
    settings = profile.changed(generation={"max_new_tokens": 7}).model_dump(mode="json")
    path = tmp_path / "a.json"

    def changes(now: Profile = profile, method: str = "plain", **old: Any) -> str:
        report = {"method": "plain", "settings": {**settings, **old}}
        path.write_text(json.dumps(report), encoding="utf-8")
        return changes_since(path, now, method)

    assert changes() == ""
    assert changes(profile.changed(prompt={"words": 9}), "lookup") == (
        f"prompt.words is 9 (was {json.dumps(settings['prompt']['words'])}), "
        'method is "lookup" (was "plain")'
    )
    older = {k: v for k, v in settings["prompt"].items() if k != "on_loop"}
    assert changes(prompt=older) == 'prompt.on_loop is "retry" (is new)'
    assert changes(prompt={}).endswith(" more")
    path.write_text("{", encoding="utf-8")
    assert changes_since(path, profile, "plain") == ""
    assert changes_since(tmp_path / "none.json", profile, "plain") == ""


def test_without_a_folder_there_is_no_journal(tmp_path: Path) -> None:
    destination = Destination(io.StringIO(), out=tmp_path / "sum.md")
    for each in (destination, replace(destination, out=None)):
        with Earlier(JobOptions(), each, "s") as earlier:
            assert earlier.journal is None
            assert not earlier.is_done(A, INPUT)
    assert list(tmp_path.iterdir()) == []
