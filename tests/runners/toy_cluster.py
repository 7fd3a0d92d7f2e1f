"""A scheduler that trains toy fleets in this process, or says that they died: for the tests of crew and clusters."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rawls.runners.schedule.backends.cluster import Cluster, FleetTask, Scheduler
from rawls.runners.schedule.crew import Ending
from rawls.runners.schedule.progress import Reporter
from rawls.runners.store.results_store import Store
from tests.runners.toy_fleet import TASK, planned

Ids = tuple[str, ...]


class Toy:
    """Trains at once what it is given, unless `disturb` has an answer for those runs."""

    def __init__(self, disturb: Callable[[Ids], Ending | None] = lambda ids: None) -> None:
        self.disturb = disturb
        self.submitted: list[Ids] = []
        self.asked_to_stop: list[int] = []
        self.killed: list[int] = []
        self._tasks: dict[int, FleetTask] = {}

    def submit(self, tasks: Sequence[FleetTask]) -> list[Any]:
        numbers = range(len(self.submitted), len(self.submitted) + len(tasks))
        self.submitted += [tuple(run.run_id for run in task.fleet) for task in tasks]
        self._tasks |= dict(zip(numbers, tasks, strict=True))
        return list(numbers)

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        return {job: self.disturb(self.submitted[job]) or self._tasks[job]() for job in jobs}

    def stop(self, jobs: Collection[Any]) -> None:
        self.asked_to_stop += jobs

    def kill(self, jobs: Collection[Any]) -> None:
        self.killed += jobs


@dataclass(frozen=True, kw_only=True)
class Elsewhere(Cluster):
    """Where the toy is the scheduler."""

    toy: Toy
    has_gpus = False

    def check(self) -> None:
        pass

    @contextmanager
    def joined(self, store: Store) -> Iterator[tuple[Scheduler, int]]:
        yield self.toy, self.workers or 1


class Notes(Reporter):
    """Keeps what the user is told, and what became of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def train(toy: Toy, store: Store, count: int, workers: int = 1, **config: Any) -> tuple[bool, Notes]:
    shown = Notes()
    runs = [planned(number, **config) for number in range(count)]
    store.check()
    shown.start(total=count, skipped=0)
    return Elsewhere(toy=toy, workers=workers).train(runs, store=store, shown=shown, task=TASK), shown


def states(store: Store, count: int) -> list[str]:
    return [store.state(planned(number).run_id) for number in range(count)]


def ids(*numbers: int) -> Ids:
    return tuple(planned(number).run_id for number in numbers)
