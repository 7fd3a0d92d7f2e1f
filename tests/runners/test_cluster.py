"""What a sweep does with the answers of a scheduler: one that trains toy fleets in this process, or says they died."""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runners import cluster, crew, planner
from runners.cluster import Cluster, Scheduler, Task
from runners.crew import Ending
from runners.planner import MAX_FLEET, Cost, Estimate
from runners.progress import Reporter
from runners.ray_launcher import RayCluster
from runners.slurm_launcher import SlurmCluster
from runners.store import ResultsError, Store
from tests.runners.toy_fleet import TASK, planned

Ids = tuple[str, ...]


class Toy:
    """Trains at once what it is given, unless `disturb` has an answer for those runs."""

    def __init__(self, disturb: Callable[[Ids], Ending | None] = lambda ids: None) -> None:
        self.disturb = disturb
        self.submitted: list[Ids] = []
        self.asked_to_stop: list[int] = []
        self.killed: list[int] = []
        self._tasks: dict[int, Task] = {}

    def submit(self, tasks: Sequence[Task]) -> list[Any]:
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


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No pauses; and tasks change into the folder they were sent from."""
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.001)
    monkeypatch.chdir(tmp_path)


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


def test_fleets_go_out_and_are_done(results_root: Path) -> None:
    toy, store = Toy(), Store(results_root)
    interrupted, shown = train(toy, store, 4)
    assert not interrupted and states(store, 4) == ["done"] * 4
    assert [sorted(fleet) for fleet in toy.submitted] == [list(ids(0, 1, 2, 3))]
    assert shown.summary() == "4/4 runs done"


GIB = 1 << 30
# Of a machine that submits jobs and trains none: not even two runs would fit here.
HERE = Estimate(cost=Cost(seconds=1.0, bytes=GIB, bytes_per_run=GIB, room=2 * GIB))


@pytest.mark.parametrize(
    ("there", "device", "largest"),
    [
        (SlurmCluster(), "auto", MAX_FLEET["cpu"]),
        (SlurmCluster(memory=5.0), "auto", 3),  # each of the two jobs has 5 GiB: 0.8 of it, less what none is without
        (SlurmCluster(memory=1.0), "auto", 1),
        (SlurmCluster(gpus=1, memory=5.0), "auto", MAX_FLEET["cuda"]),
        (SlurmCluster(gpus=1, memory=5.0), "cpu", 3),
        (RayCluster(address="somewhere:1"), "auto", MAX_FLEET["cpu"]),
        (RayCluster(address="somewhere:1", num_gpus=0.5), "cuda", MAX_FLEET["cuda"]),
        (RayCluster(), "auto", 1),  # a Ray on this machine
    ],
)
def test_fleets_are_packed_for_the_workers_that_train_them(
    there: Cluster, device: str, largest: int, results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "measured", lambda run: HERE)
    toy, store = Toy(), Store(results_root)
    monkeypatch.setattr(Elsewhere, "estimate", lambda _, run: there.estimate(run))
    _, shown = train(toy, store, 4 * largest, workers=2, device=device, steps=2)
    assert [len(fleet) for fleet in toy.submitted] == [largest] * 4
    assert shown.summary() == f"{4 * largest}/{4 * largest} runs done"


def test_a_fleet_that_dies_is_tried_in_halves_and_a_run_once_more(results_root: Path) -> None:
    """Run 2 kills whoever trains it."""
    doomed = ids(2)[0]
    toy = Toy(lambda fleet: Ending(death="SIGKILL") if doomed in fleet else None)
    store = Store(results_root)
    _, shown = train(toy, store, 4)
    sizes = [len(fleet) for fleet in toy.submitted if doomed in fleet]
    assert sizes == [4, 2, 1, 1]
    assert states(store, 4) == ["done", "done", "failed", "done"]
    assert store.error(doomed) == "RuntimeError: the worker process died 2 times during this run (SIGKILL)"
    assert shown.summary() == "3/4 runs done, 1 failed"


def test_a_run_that_may_lack_memory_is_tried_a_third_time(results_root: Path) -> None:
    greedy, store = ids(0)[0], Store(results_root)
    toy = Toy(lambda fleet: Ending(death="gone", perhaps_memory=True) if greedy in fleet else None)
    _, shown = train(toy, store, 3, workers=3)
    assert [fleet for fleet in toy.submitted if greedy in fleet] == [ids(0)] * 3
    assert states(store, 3) == ["failed", "done", "done"]
    assert store.error(greedy) == "RuntimeError: the worker process died 3 times during this run (gone)"
    assert shown.summary() == "2/3 runs done, 1 failed"


def test_a_run_that_failed_before_is_tried_again_though_its_first_worker_died_at_once(results_root: Path) -> None:
    store = Store(results_root)
    folder = store.claim(planned(0).run_id, planned(0).config)
    assert folder is not None
    folder.fail(ArithmeticError("no inverse"))
    os.utime(folder.path, (1.0, 1.0))
    toy = Toy(lambda fleet: Ending(death="SIGKILL") if len(toy.submitted) == 1 else None)
    train(toy, store, 1)
    assert toy.submitted == [ids(0), ids(0)]
    assert states(store, 1) == ["done"]


def test_runs_that_a_failed_fleet_asks_for_are_sent_again_alone(results_root: Path) -> None:
    toy = Toy(lambda fleet: Ending(again=list(ids(0, 3))) if len(fleet) == 4 else None)
    store = Store(results_root)
    train(toy, store, 4)
    assert set(toy.submitted[1:3]) == {ids(0), ids(3)}
    assert states(store, 4) == ["done"] * 4, "what was left over is sent a last time"


def test_the_runs_of_a_dead_worker_wait_for_its_lease(results_root: Path) -> None:
    """A worker on another machine is known to be dead only after a while."""
    store, other = Store(results_root), Store(results_root)
    run = planned(0)
    folder = other.claim(run.run_id, run.config)
    assert folder is not None
    looks = 0

    def disturb(fleet: Ids) -> Ending | None:
        nonlocal looks
        looks += 1
        return Ending(death="NodeDiedError") if looks == 1 else None

    state_of = store.state

    def state(run_id: str) -> Any:
        nonlocal looks
        seen = state_of(run_id)
        if looks == 1 and seen == "running":
            looks += 1
        elif looks == 2 and seen == "running":
            folder.release()
        return seen

    store.state = state  # type: ignore[method-assign]
    toy = Toy(disturb)
    train(toy, store, 1)
    assert toy.submitted == [ids(0), ids(0)]
    assert states(store, 1) == ["done"]


def test_a_run_that_another_worker_holds_is_not_waited_for_for_ever(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "LEASE_PATIENCE_SECONDS", 0.0)
    store, run = Store(results_root), planned(0)
    folder = Store(results_root).claim(run.run_id, run.config)
    assert folder is not None
    toy = Toy(lambda fleet: Ending(death="NodeDiedError"))
    interrupted, _ = train(toy, store, 1)
    assert not interrupted and states(store, 1) == ["running"]
    folder.release()


def test_what_stops_the_sweep_stops_every_job(results_root: Path) -> None:
    error = ResultsError("results.root=x is full")
    toy = Toy(lambda fleet: Ending(fatal=error) if ids(0)[0] in fleet else Ending())
    with pytest.raises(ResultsError, match="is full"):
        train(toy, Store(results_root), 1)
    assert toy.killed == []
    toy.ended = lambda jobs: {0: Ending(fatal=error)}  # type: ignore[method-assign]
    toy.submitted.clear()
    with pytest.raises(ResultsError, match="is full"):
        train(toy, Store(results_root), 40)
    assert toy.killed == list(range(1, len(toy.submitted)))
    assert toy.killed


def test_a_task_that_breaks_down_says_so_and_a_full_disk_too(results_root: Path, tmp_path: Path) -> None:
    def answer(number: int, task: str = TASK, **config: Any) -> Ending:
        fleet = (planned(number, **config),)
        return Task(fleet=fleet, root=results_root, folder=tmp_path, stop=tmp_path / "stop", train_fleet=task)()

    assert answer(0) == Ending()
    assert isinstance(answer(1, full_at=14).fatal, ResultsError)
    broken = answer(2, "no_such_module:task").fatal
    assert isinstance(broken, RuntimeError) and "No module named 'no_such_module'" in str(broken)


def test_a_task_does_not_begin_once_the_sweep_is_to_stop(results_root: Path, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    task = Task(fleet=(planned(0),), root=results_root, folder=tmp_path, stop=tmp_path / "stop", train_fleet=TASK)
    assert task() == Ending()
    assert Store(results_root).state(planned(0).run_id) == "missing"


@pytest.mark.parametrize("requests", [1, 2])
def test_ctrl_c_asks_the_jobs_to_save_and_the_second_ends_them(results_root: Path, requests: int) -> None:
    toy, store = Toy(), Store(results_root)
    looks = 0

    def ended(jobs: Collection[Any]) -> dict[Any, Ending]:
        nonlocal looks
        looks += 1
        if looks <= requests:
            os.kill(os.getpid(), signal.SIGINT)
            return {}
        assert list(results_root.glob(".stop.*")), "what starts now must not begin"
        return dict.fromkeys(jobs, Ending())

    toy.ended = ended  # type: ignore[method-assign]
    interrupted, shown = train(toy, store, 2)
    assert interrupted
    assert toy.asked_to_stop == [0]
    assert toy.killed == ([0] if requests == 2 else [])
    assert shown.notes == ["stopping: the runs are being saved; Ctrl-C again stops at once"]
    assert not list(results_root.glob(".stop.*"))
