"""The choice of workers."""

import pytest

from specx.cores import Threads
from specx.jobs import staff
from specx.jobs.staff import choose_staff


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
    monkeypatch.setattr(staff, "visible_gpus", lambda _: tuple(map(str, range(gpus))))
    monkeypatch.setattr(staff, "usable_cores", lambda: cores)
    monkeypatch.setattr(staff, "free_memory", lambda: None)
    threads = Threads(number=None, spin=True, reason="")
    chosen = choose_staff(None, documents, "auto", threads, asked_threads=None)
    assert (chosen.number, chosen.prepares) == (number, prepares)
