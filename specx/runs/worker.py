"""The work of one worker: models that are loaded once, and one document after the other."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace

from specx.errors import SpecxError, error_of
from specx.models.memory import free_bytes
from specx.records import Event
from specx.reports.report import Report
from specx.runs.calibration import resolve_measured
from specx.runs.deadline import Deadline
from specx.runs.pair import choose_device, load_pair
from specx.runs.preparing import MakePrompts, Turned, taken
from specx.runs.summarizer import Summarizer
from specx.runs.tasks import Ended, Loaded, Message, NotLoaded, Progressed, Task, WorkerSettings

EVERY_S = 0.1  # at least, between two messages about one document


class Relay:
    """A listener that hands on what it is told, a few times a second."""

    def __init__(
        self, tell: Callable[[Message], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._tell, self._clock = tell, clock
        self.partial: Callable[[], str] = lambda: ""
        self.begin(-1)

    def begin(self, number: int) -> None:
        """Begin a document."""
        self._number, self._events, self._phase = number, list[Event](), ""
        self._part: tuple[int, int] | None = None
        self._next = self._clock()

    def phase(self, name: str) -> None:
        self._phase = name
        self._pass_on()

    def part(self, part: int, parts: int) -> None:
        self._part = (part, parts)

    def on(self, event: Event) -> None:
        self._events.append(event)
        if self._clock() >= self._next:
            self._pass_on()

    def show(self, text: str) -> None:
        """Nothing: the partial summary goes with the events."""

    def write(self, text: str) -> None:
        """Nothing, for the same reason."""

    def start(self, name: str, **_: object) -> None:
        """Nothing: the run knows which document it is."""

    def done(self, report: Report) -> None:
        """Nothing: the worker hands on the report."""

    def _pass_on(self) -> None:
        if self._number < 0:
            return
        self._tell(
            Progressed(
                number=self._number,
                phase=self._phase,
                part=self._part,
                events=tuple(self._events),
                partial=self.partial(),
            )
        )
        self._events, self._phase, self._part = [], "", None
        self._next = self._clock() + EVERY_S


class Worker:
    """Summarizes documents and tells what becomes of them."""

    def __init__(self, settings: WorkerSettings, tell: Callable[[Message], None]) -> None:
        self._settings, self._tell = settings, tell
        self._relay = Relay(tell)
        self._deadline = None if settings.timeout is None else Deadline(settings.timeout)
        self._summarizer: Summarizer | None = None
        self._load_s = 0.0

    def load(self) -> bool:
        """Load the models; return False, and tell the reason, if they cannot be loaded."""
        started = time.perf_counter()
        try:
            self._summarizer = self._load()
        except Exception as error:
            known = error if isinstance(error, SpecxError) else error_of("loading", error)
            self._tell(NotLoaded(error=known))
            return False
        self._relay.partial = lambda: self._summarizer.partial if self._summarizer else ""
        self._load_s = time.perf_counter() - started
        limit = self._summarizer.settings.limit
        self._tell(Loaded(limit=limit, room=_room(self._summarizer)))
        return True

    @property
    def make_prompts(self) -> MakePrompts:
        """Return what makes the prompts of a document, once the models are loaded."""
        assert self._summarizer is not None
        return self._summarizer.make_prompts

    def do(self, task: Task, turn: Turned | None = None) -> None:
        """Summarize a document. ``turn``: that of its prompts, if they are made elsewhere."""
        assert self._summarizer is not None
        self._relay.begin(task.number)
        before = replace(task.before, load=self._load_s)
        self._load_s = 0.0
        self._relay.phase("preparing the prompt")
        prepared = taken(turn)
        if self._deadline:
            spent = before.read + (prepared.seconds if prepared else 0.0)
            self._deadline.begin(task.document.name, spent)
        self._summarizer.partial = ""
        try:
            outcome: Report | SpecxError = self._summarizer.summarize(
                task.document, before, prepared
            )
        except SpecxError as error:
            outcome = error.with_traceback(None)  # it would hold the caches, and this frame it
        except Exception as error:  # an unexpected failure costs no other document
            outcome = error_of(task.document.name, error)
        partial = self._summarizer.partial
        self._tell(Ended(number=task.number, outcome=outcome, partial=partial))

    def _load(self) -> Summarizer:
        settings = self._settings
        device = choose_device(settings.device)
        profile, method = settings.profile, settings.method
        pair = load_pair(profile, method, device)
        resolved = resolve_measured(profile, method, pair, self._relay, settings.asked)
        return Summarizer(
            resolved, pair, self._relay, check=settings.check, deadline=self._deadline
        )


def _room(summarizer: Summarizer) -> int:
    """Return how many more processes like this one fit into main memory, half of it left free.

    A large number where nothing tells.
    """
    free = free_bytes(summarizer.pair.target.device)
    if summarizer.pair.target.device.type != "cpu" or free is None:
        return 1 << 16
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return free // (2 * taken)
