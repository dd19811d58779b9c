"""The choice of workers."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from specx.cores import Threads
from specx.runs import pool
from specx.runs.pool import Placement, choose_placement, visible_gpus


@pytest.mark.parametrize(
    ("gpus", "cores", "documents", "number", "prepares"),
    [
        (1, 16, 1, 0, False),  # a single document pays for nothing
        (1, 16, 2, 1, True),
        (1, 3, 32, 1, True),
        (1, 2, 32, 1, False),  # no core is free for it
        (8, 16, 100, 8, False),
        (8, 17, 100, 8, True),
        (8, 64, 8, 8, False),  # none waits
        (0, 16, 100, 16, False),  # the cores of a CPU work anyway
    ],
)
def test_prompts_are_prepared_where_a_gpu_would_wait_and_a_core_is_free(
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    cores: int,
    documents: int,
    number: int,
    *,
    prepares: bool,
) -> None:
    monkeypatch.setattr(pool, "visible_gpus", lambda _: tuple(map(str, range(gpus))))
    monkeypatch.setattr(pool, "usable_cores", lambda: cores)
    monkeypatch.setattr(pool, "free_memory", lambda: None)
    threads = Threads(number=None, spin=True, reason="")
    chosen = choose_placement(None, documents, "auto", threads, requested_threads=None)
    assert (chosen.number, chosen.prepares) == (number, prepares)


@pytest.mark.parametrize(
    ("named", "counted", "names"),
    [
        (None, 2, ("0", "1")),
        ("1,0", 2, ("1", "0")),
        ("1", 1, ("1",)),
        ("0,-1,1", 1, ("0",)),  # the driver ends at what it does not know
        ("", 0, ()),
        (" GPU-8a6f , MIG-42 ", 2, ("GPU-8a6f", "MIG-42")),
    ],
)
def test_each_worker_sees_one_of_the_gpus_that_the_user_lets_be_seen(
    monkeypatch: pytest.MonkeyPatch, named: str | None, counted: int, names: tuple[str, ...]
) -> None:
    def count(to: Any) -> int:
        to._obj.value = counted
        return 0

    driver = SimpleNamespace(cuInit=lambda _: 0 if counted else 100, cuDeviceGetCount=count)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr(pool, "version", lambda _: "2.11.0+cu130")
    found = visible_gpus({} if named is None else {"CUDA_VISIBLE_DEVICES": named})
    assert found == names
    if found:
        seen = [Placement(number=9, gpus=found).environment(place) for place in range(3)]
        wanted = [*names, *names, *names][:3]
        assert seen == [{"CUDA_VISIBLE_DEVICES": name} for name in wanted]


@pytest.mark.parametrize(("documents", "number"), [(1, 0), (2, 2), (3, 3), (99, 4)])
def test_no_more_gpus_are_used_than_there_are_documents(
    monkeypatch: pytest.MonkeyPatch, documents: int, number: int
) -> None:
    monkeypatch.setattr(pool, "visible_gpus", lambda _: ("0", "1", "2", "3"))
    threads = Threads(number=None, spin=True, reason="")
    chosen = choose_placement(None, documents, "auto", threads, requested_threads=None)
    assert chosen.number == number
