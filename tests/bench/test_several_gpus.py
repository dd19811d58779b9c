"""``docs/several_gpus.py``: what it concludes from runs on one GPU and on two."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "several_gpus.py"))


def ended(name: str, at: float, load: float = 0.0) -> dict[str, Any]:
    timings = dict.fromkeys(("read", "tokenize", "host"), 0.25)
    work = {"target_prefill": 0.5, "drafting": 0.25}
    return {
        "at_s": at,
        "input": {"name": f"docs/{name}", "prompt_tokens": 1000},
        "generated_tokens": 100,
        "timings_s": {**timings, **work, "load": load, "total": 1.5 + load},
    }


def test_figures_begin_when_every_worker_has_ended_a_document() -> None:
    several = [ended("a", 20.0, 9.0), ended("b", 20.5, 9.0)]
    several += [ended("c", 21.0), ended("d", 21.5), ended("e", 22.0), ended("f", 22.5)]
    asked = []
    figures = SCRIPT["figures_of"](several, 2, lambda *times: asked.append(times) or [0.9, 0.8])
    assert asked == [(20.5, 22.5)]
    assert figures["after_first"] == 4
    assert figures["documents_per_hour"] == 7200
    assert figures["models_share"] == pytest.approx(4 * 0.75 / (2 * 2.0))
    assert figures["driver_shares"] == [0.9, 0.8]
    again = SCRIPT["figures_of"]([*several, ended("g", 40.5, 9.0)], 2, lambda *_: [])
    assert (again["after_first"], again["after_first_s"]) == (5, 20.0)
    assert SCRIPT["figures_of"](several[:2], 2, lambda *_: []) == {"after_first": 0}


def test_what_a_killed_worker_had_was_done_by_others_before_it_was_replaced() -> None:
    log = "".join(
        f"/tmp/docs/{name} (document 9 of 32): waiting for another worker\n" for name in "cd"
    )
    done = [ended("a", 20.0, 9.0), ended("c", 24.0), ended("b", 41.0, 9.0), ended("d", 42.0)]
    found = SCRIPT["after_the_kill"](done, {"at_s": 23.0}, log)
    assert found == {"had": {"c": 24.0, "d": 42.0}, "replaced_s": 39.75, "by_others": ["c"]}
    found = SCRIPT["after_the_kill"](done[:2], {"at_s": 23.0}, log)
    assert found == {"had": {"c": 24.0, "d": None}, "replaced_s": None, "by_others": ["c"]}


def test_the_ratio_and_summaries_that_are_not_the_same() -> None:
    def run(name: str, rate: float | None, *texts: str) -> dict[str, Any]:
        figures = {} if rate is None else {"documents_per_hour": rate}
        summaries = dict(zip("abc", texts, strict=False))
        return {"name": name, "after_first": len(figures), "summaries": summaries, **figures}

    compare = SCRIPT["compare"]
    assert compare([run("warm", 1.0)]) == {"ratio": None, "unlike": {}}
    runs = [run("warm", 1.0), run("one", 100.0, "x", "y"), run("several", 190.0, "x", "y")]
    assert compare(runs) == {"ratio": 1.9, "unlike": {"several": []}}
    runs += [run("killed", 150.0, "x"), run("several again", None, "x", "z")]
    unlike = {"several": [], "killed": ["b"], "several again": ["b"]}
    assert compare(runs) == {"ratio": 1.9, "unlike": unlike}
