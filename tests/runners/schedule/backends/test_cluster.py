"""How fleets are packed for other machines, and what a task does there."""

from pathlib import Path
from typing import Any

import pytest

from rawls.runners.schedule import planner
from rawls.runners.schedule.backends import cluster
from rawls.runners.schedule.backends.cluster import Cluster, FleetTask
from rawls.runners.schedule.backends.ray import RayCluster
from rawls.runners.schedule.backends.slurm import SlurmCluster
from rawls.runners.schedule.crew import Ending
from rawls.runners.schedule.planner import MAX_FLEET, Cost, Estimate
from rawls.runners.store.results_store import ResultsError, Store
from tests.runners.toy_cluster import Elsewhere, Toy, train
from tests.runners.toy_fleet import TASK, planned


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No pauses; and tasks change into the folder they were sent from."""
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.001)
    monkeypatch.chdir(tmp_path)


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


def test_a_task_that_breaks_down_says_so_and_a_full_disk_too(results_root: Path, tmp_path: Path) -> None:
    def answer(number: int, task: str = TASK, **config: Any) -> Ending:
        fleet = (planned(number, **config),)
        return FleetTask(fleet=fleet, root=results_root, folder=tmp_path, stop=tmp_path / "stop", train_fleet=task)()

    assert answer(0) == Ending()
    assert isinstance(answer(1, full_at=14).fatal, ResultsError)
    broken = answer(2, "no_such_module:task").fatal
    assert isinstance(broken, RuntimeError) and "No module named 'no_such_module'" in str(broken)


def test_a_task_does_not_begin_once_the_sweep_is_to_stop(results_root: Path, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    task = FleetTask(fleet=(planned(0),), root=results_root, folder=tmp_path, stop=tmp_path / "stop", train_fleet=TASK)
    assert task() == Ending()
    assert Store(results_root).state(planned(0).run_id) == "missing"
