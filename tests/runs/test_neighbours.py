"""Threads given up and taken back, with made-up neighbours and clock."""

from collections.abc import Iterator

import pytest

from specx.cores import Others
from specx.runs import neighbours as module
from specx.runs.neighbours import LOOK_S, QUIET_LOOKS, Neighbours


class Made(Others):
    """Others that keep as many cores busy as a test says."""

    def __init__(self) -> None:
        self.cores: float | None = 0.0
        self.asked = 0

    def busy(self) -> float | None:
        self.asked += 1
        return self.cores


class Scene:
    def __init__(self, number: int) -> None:
        self.others, self.now, self.told = Made(), 0.0, list[int]()
        self.neighbours = Neighbours(
            number, self.others, set_number=self.told.append, clock=lambda: self.now
        )

    def look(self, busy: float | None, times: int = 1) -> None:
        self.others.cores = busy
        for _ in range(times):
            self.now += 1.01 * LOOK_S
            self.neighbours.look()


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    return Scene(4)


def test_alone_nothing_changes(four: Scene) -> None:
    four.look(0.05, times=20)
    assert four.told == []


@pytest.mark.parametrize(
    ("busy", "number"), [(0.4, 3), (1.0, 3), (1.4, 2), (2.0, 2), (3.9, 1), (9.0, 1)]
)
def test_a_thread_less_for_each_busy_core(four: Scene, busy: float, number: int) -> None:
    four.look(busy)
    assert four.told == [number]


def test_cores_are_taken_back_after_a_while_of_quiet(four: Scene) -> None:
    four.look(1.0)
    four.look(0.0, times=QUIET_LOOKS - 1)
    four.look(1.0)
    four.look(0.0, times=QUIET_LOOKS - 1)
    assert four.told == [3]
    four.look(0.0)
    assert four.told == [3, 4]


def test_threads_that_leave_cores_free_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    scene = Scene(4)
    scene.look(3.0, times=3)
    assert scene.told == []


def test_a_machine_that_tells_nothing_changes_nothing(four: Scene) -> None:
    four.look(None, times=3)
    assert four.told == []


def test_it_looks_now_and_then(four: Scene) -> None:
    for _ in range(100):
        four.now += LOOK_S / 10
        four.neighbours.look()
    assert 8 <= four.others.asked <= 10


def test_events_pass_through_and_each_is_a_chance_to_look(four: Scene) -> None:
    def events() -> Iterator[int]:
        for number in range(3):
            four.now += 1.01 * LOOK_S
            yield number

    four.others.cores = 1.0
    assert list(four.neighbours.between(events())) == [0, 1, 2]
    assert four.told == [3]
