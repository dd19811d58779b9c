"""What is prepared for a benchmark: methods, and the watch over other processes."""

from typing import Any

import pytest
import torch

from specx.bench import session
from specx.bench.request import BenchListener, Request
from specx.bench.workbench import Workbench
from tests.bench.benches import embedded


def prepared(length: int, **changes: Any) -> Workbench:
    _, profile = embedded()
    given: dict[str, Any] = {
        "command": "specx bench",
        "experiments": "speedup",
        "profile": profile,
        "documents": (),
        "lengths": (length,),
        "methods": "plain",
        "repeats": 1,
        "most": 1,
        "tokens": 8,
        "seed": 0,
        "device": "cpu",
    }
    return session.prepare(Request(**given | changes), BenchListener())


@pytest.mark.parametrize(
    ("asked", "compared"),
    [
        ("specextend", "plain,lookup,specextend"),
        ("tree,specextend+lookup,plain", "plain,lookup,tree,specextend+lookup"),
        ("specextend:nodes=4,depth=4", "plain,lookup,specextend:nodes=4,depth=4"),
        ("plain,tree", "plain,tree"),
    ],
)
def test_plain_and_lookup_are_always_beside_ours(asked: str, compared: str) -> None:
    bench = prepared(300, methods=asked)
    assert ",".join(method.name for method in bench.methods) == compared


def test_other_processes_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(session.LoadMonitor, "taken", lambda _, threads: asked.append(threads))
    bench = prepared(300)
    list(bench.alternate(bench.all_cases(), warm_up=False))
    assert asked == 2 * [torch.get_num_threads()]
    assert session.threads_of(torch.device("cuda")) == 1
