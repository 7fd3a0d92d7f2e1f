"""What the crew does with the fleets of a sweep that end, die or are stopped: on a scheduler that is a toy."""

import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.schedule import crew
from rawls.runners.schedule.backends import cluster
from rawls.runners.schedule.crew import Ending
from rawls.runners.store.results_store import ResultsError, Store
from tests.runners.toy_cluster import Ids, Toy, ids, states, train
from tests.runners.toy_fleet import planned


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No pauses; and tasks change into the folder they were sent from."""
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.001)
    monkeypatch.chdir(tmp_path)


def test_fleets_go_out_and_are_done(results_root: Path) -> None:
    toy, store = Toy(), Store(results_root)
    interrupted, shown = train(toy, store, 4)
    assert not interrupted and states(store, 4) == ["done"] * 4
    assert [sorted(fleet) for fleet in toy.submitted] == [list(ids(0, 1, 2, 3))]
    assert shown.summary() == "4/4 runs done"


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
