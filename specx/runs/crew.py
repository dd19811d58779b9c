"""All workers of a run: which of them is free, which has what in work, and what becomes of it."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specx.errors import BatchError, OutOfMemoryError
from specx.runs.tasks import Ended, Loaded, Lost, Message, NotLoaded, Progressed, Task, Workers

_LOST_LOADING = 2  # workers in a row that no document can have harmed
_LOST_IN_A_ROW = 6  # and two more for each worker, without a document that ended


@dataclass(frozen=True)
class Returned:
    """A document that a lost worker had. ``begun``: it was in work there; otherwise it waited."""

    number: int
    begun: bool
    reason: str


News = Progressed | Ended | Returned


class Crew:
    """Gives documents to workers, which are started as they are needed.

    What is meant for a worker that still loads its models stays here, where one that has them can
    take it.

    ``most``: workers at a time. ``waiting``: documents that may wait at each worker, so that it has
    none to wait for. ``one_first``: start others when the first has loaded its models and told how
    many more have room. ``on_first``: called when the first one is started.
    """

    def __init__(
        self,
        workers: Workers,
        most: int,
        *,
        waiting: int = 0,
        one_first: bool = False,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers, self._most, self._waiting = workers, most, waiting
        self._on_first = on_first
        self._room = 1 if one_first else most
        self._tasks: dict[int, deque[Task]] = {}  # by place; the first is in work
        self._loaded: set[int] = set()
        self._unfit: set[int] = set()  # places where models cannot be loaded
        self._lost = self._lost_loading = 0  # in a row
        self.limit: int | None = None  # output tokens of a part, once it is known

    @property
    def has_room(self) -> bool:
        """Return True if a document can be given."""
        least = min(map(len, self._tasks.values()), default=0)
        return least == 0 or self._may_start or least <= self._waiting

    def give(self, task: Task) -> None:
        """Give a document to a worker that is free, to a new one, or to wait at one."""
        free = [place for place, tasks in self._tasks.items() if not tasks]
        if free:
            place = min(free, key=lambda place: place not in self._loaded)
        elif self._may_start:
            place = self._start()
        else:
            place = min(self._tasks, key=lambda place: len(self._tasks[place]))
        self._add(place, task)

    def told(self, seconds: float) -> list[News]:
        """Return what workers have told; wait at most so long for something.

        Raises the error of loading if no worker can load the models, and BatchError when one worker
        after the other is lost.
        """
        if not self._tasks:
            time.sleep(seconds)
            return []
        return [
            news
            for place, message in self._workers.told(seconds)
            for news in self._understand(place, message)
        ]

    def close(self) -> None:
        """End all workers."""
        self._workers.close()

    @property
    def _may_start(self) -> bool:
        return len(self._tasks) < min(self._most, self._room)

    def _start(self) -> int:
        self._on_first()
        self._on_first = _nothing
        taken = self._tasks.keys() | self._unfit
        place = next(place for place in itertools.count() if place not in taken)
        self._tasks[place] = deque()
        self._workers.start(place)
        return place

    def _add(self, place: int, task: Task) -> None:
        self._tasks[place].append(task)
        if place in self._loaded:
            self._workers.give(place, task)

    def _relieve(self, place: int) -> None:
        """Let a worker with models have the oldest document that waits for those of another."""
        loading = [self._tasks[each] for each in self._tasks.keys() - self._loaded]
        waiting = min(filter(None, loading), key=lambda tasks: tasks[0].number, default=None)
        if waiting and len(self._tasks[place]) <= self._waiting:
            self._add(place, waiting.popleft())

    def _understand(self, place: int, message: Message) -> list[News]:
        match message:
            case Loaded():
                self._loaded.add(place)
                self._lost_loading, self.limit = 0, message.limit
                self._room = max(self._room, min(self._most, len(self._tasks) + message.room))
                for task in self._tasks[place]:
                    self._workers.give(place, task)
                return []
            case NotLoaded():
                if len(self._tasks) == 1:  # no model, no batch
                    raise message.error
                self._workers.stop(place)
                self._do_without(place)  # the others have models: there is no room for one more
                return self._take_back(place, str(message.error), begun=False)
            case Lost():
                return self._lose(place, message.reason)
            case Ended():
                self._tasks[place].popleft()
                self._lost = 0
                self._relieve(place)
        return [message]

    def _lose(self, place: int, reason: str) -> list[News]:
        had_models = place in self._loaded
        self._lost += 1
        self._lost_loading = 0 if had_models else self._lost_loading + 1
        if self._lost_loading >= _LOST_LOADING:
            if not self._loaded:
                raise OutOfMemoryError(
                    f"{self._lost_loading} workers in a row were lost while they loaded the models "
                    f"({reason}); fewer --workers need less memory"
                )
            self._do_without(place)
        if self._lost > _LOST_IN_A_ROW + 2 * self._most:
            raise BatchError(
                f"stopped: {self._lost} workers in a row were lost ({reason}); "
                "fewer --workers need less memory"
            )
        return self._take_back(place, reason, begun=had_models)

    def _do_without(self, place: int) -> None:
        """Start one worker less from now on, and none at this place: its GPU may be the reason."""
        self._most -= 1
        self._unfit.add(place)
        self._lost_loading = 0

    def _take_back(self, place: int, reason: str, *, begun: bool) -> list[News]:
        self._loaded.discard(place)
        tasks = self._tasks.pop(place)
        return [Returned(task.number, begun and at == 0, reason) for at, task in enumerate(tasks)]


def _nothing() -> None:
    """Tell nothing: there was a first worker."""
