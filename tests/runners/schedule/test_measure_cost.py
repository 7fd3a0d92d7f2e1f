import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rawls.runners.config.compose import compose, resolve
from rawls.runners.process.worker import train
from rawls.runners.schedule import measure_cost
from rawls.runners.schedule.launcher import planned
from rawls.runners.schedule.measure_cost import Reading, cost_of, estimate, measure
from rawls.runners.schedule.planner import UNMEASURED, Cost, pack_fleets
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from rawls.runners.training.fleet import train_fleet

SMALL = ("dataset=digits", "scale=smoke", "tracking=off", "device=cpu")


def config(*overrides: str) -> dict[str, Any]:
    return resolve(compose([*SMALL, *overrides]))


@pytest.fixture(autouse=True)
def nothing_measured() -> Iterator[None]:
    before = dict(measure_cost._costs)
    measure_cost._costs.clear()
    yield
    measure_cost._costs.clear()
    measure_cost._costs.update(before)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch sizes that were measured; each costs the same."""
    asked: list[int] = []

    def of(config: dict[str, Any]) -> Cost:
        asked.append(config["schedule"]["batch_size"])
        return Cost(seconds_per_sample=1.0, seconds_per_row=0.5)

    monkeypatch.setattr(measure_cost, "measure", of)
    return asked


def test_a_measurement_is_made_once_for_model_data_batch_and_device(measured: list[int]) -> None:
    for seed in range(3):
        for method in ("dpsgd", "asc"):
            cost_of(config(f"algorithm={method}", f"seed={seed}", "privacy.epsilon=3", "optimizer.lr=0.3"))
    assert measured == [16]
    cost_of(config("schedule.batch_size=8"))
    cost_of(config("model=logistic"))
    cost_of(config("physical_batch=3"))
    assert measured == [16, 8, 16, 16]


def test_what_a_run_takes_depends_on_its_method(measured: list[int]) -> None:
    """A batch of aZB-prop is a tenth of the batch size for ten groups, and ASC looks at all rows at each update."""
    prop, asc, dpsgd = (
        estimate(config(f"algorithm={name}", "schedule.max_steps=200")) for name in ("azb_prop", "asc", "dpsgd")
    )
    assert (asc.batch, dpsgd.batch) == (16.0, 16.0)
    assert 1.0 <= prop.batch <= 3.0
    assert prop.steps == asc.steps == dpsgd.steps == 200
    prepared = setup.prepare_run(config("algorithm=asc", "schedule.max_steps=200"))
    assert prepared.plan is not None
    updates = prepared.plan.releases["group losses"]
    assert updates > 0
    assert asc.rows - dpsgd.rows == updates * prepared.task.population.total
    assert prepared.data is not None
    assert dpsgd.rows == 2 * sum(map(len, prepared.data.splits(0)))  # few rows: no part is sampled
    assert prop.seconds < dpsgd.seconds < asc.seconds
    attacking = estimate(config("algorithm=pgd_at", "schedule.max_steps=200"))  # ten times to and fro before each step
    assert (attacking.batch, attacking.rows) == (11 * dpsgd.batch, 11 * dpsgd.rows)


def test_a_plan_only_run_is_not_measured(measured: list[int]) -> None:
    assert estimate(config("dataset=unbalanced_mnist", "schedule.plan_only=true", "algorithm=dpsgd")) == UNMEASURED
    assert measured == []


@pytest.mark.parametrize("where", ["here", "in a process of its own"])
def test_a_real_measurement_is_positive_and_counts_what_must_be_there(where: str) -> None:
    wanted = config("algorithm=dpsgd")
    cost = measure(wanted) if where == "here" else measure_cost._in_a_process(wanted)
    assert cost is not None
    assert cost.seconds >= 0 and cost.seconds_per_run >= 0 and cost.seconds_per_sample >= 0
    assert cost.seconds + cost.seconds_per_run + cost.seconds_per_sample > 0
    assert cost.seconds_per_row > 0
    data = setup.load(wanted)
    num_parameters = setup.build_engine(wanted, data).num_parameters
    assert cost.bytes_per_run >= 16 * num_parameters
    assert 2**20 < cost.bytes < cost.room
    assert (cost.device, cost.devices) == ("cpu", 1)


def test_a_measurement_changes_no_result(results_root: Any) -> None:
    runs = tuple(planned(config("algorithm=asc", "schedule.max_steps=6", f"seed={seed}")) for seed in range(2))
    told = []
    for name in ("before", "after"):
        store = Store(results_root / name)
        if name == "after":
            estimate(runs[0].config)
        train(runs, store=store, train_fleet=train_fleet, send=lambda _: None, asked_to_stop=lambda: False)
        told.append([store.summary(run.run_id) | {"seconds": 0} for run in runs])
    assert told[0] == told[1]


class Bench(measure_cost._Bench):
    """Steps of a made-up model that take 1 ms, 2 more for each run and 3 for each of its samples, and memory alike."""

    read_so_far: list[tuple[int, int]] = []
    room = 1e6

    def __init__(self, config: Any) -> None:
        self.device, self.data, self.base = torch.device("cpu"), setup.load(config), 0.0
        self.engine = setup.build_engine(config, self.data)

    def read(self, *, runs: int, batch: int) -> Reading:
        self.read_so_far.append((runs, batch))
        return Reading(runs, batch, 1e-6 * (1 + runs * (2 + 3 * batch)), 10.0 + runs * (20 + 30 * batch))

    def seconds_per_row(self, rows: int) -> float:
        return 5.0


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> type[Bench]:
    monkeypatch.setattr(measure_cost, "_Bench", Bench)
    monkeypatch.setattr(Bench, "read_so_far", [])
    return Bench


def test_the_cost_explains_what_was_read(bench: type[Bench]) -> None:
    cost = measure(config("algorithm=dpsgd", "schedule.batch_size=100"))
    assert bench.read_so_far == [(1, 8), (1, 32), (1, 100), (16, 100)]
    seconds = (cost.seconds, cost.seconds_per_run, cost.seconds_per_sample)
    assert seconds == pytest.approx((1e-6, 2e-6, 3e-6))
    assert cost.seconds_per_row == 5.0


@pytest.mark.parametrize(
    ("room", "read"),
    [
        (600.0, [(1, 8)]),
        (3000.0, [(1, 8), (1, 32)]),
        (9000.0, [(1, 8), (1, 32), (1, 100)]),
        (15000.0, [(1, 8), (1, 32), (1, 100), (2, 100)]),
    ],
)
def test_batches_grow_only_as_long_as_the_next_one_surely_fits(
    room: float, read: list[tuple[int, int]], bench: type[Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "room", room)
    cost = measure(config("algorithm=dpsgd", "schedule.batch_size=100"))
    assert bench.read_so_far == read
    assert cost.seconds_per_sample * 100 == pytest.approx(300e-6, rel=0.15)


@pytest.mark.parametrize(("error", "largest"), [(MemoryError(), 1), (RuntimeError("no such kernel"), 16)])
def test_what_cannot_be_measured_is_guessed_and_what_did_not_fit_is_trained_alone(
    error: Exception, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(config: dict[str, Any]) -> Cost:
        raise error

    monkeypatch.setattr(measure_cost, "measure", measure)
    runs = [planned(config("algorithm=dpsgd", f"seed={seed}")) for seed in range(16)]
    assert max(map(len, pack_fleets(runs, workers=1))) == largest
    if largest == 1:
        assert math.isinf(cost_of(runs[0].config).bytes_per_run)


def test_a_gpu_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def elsewhere(config: dict[str, Any]) -> Cost | None:
        asked.append(config["device"])
        return Cost(seconds=1.0, device="cuda", devices=4) if len(asked) < 3 else None

    monkeypatch.setattr(measure_cost, "_in_a_process", elsewhere)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    on_gpu = config("algorithm=dpsgd") | {"device": "auto"}
    assert cost_of(on_gpu) == cost_of(on_gpu) == Cost(seconds=1.0, device="cuda", devices=4)
    assert cost_of(on_gpu | {"device": "cuda:1"}).devices == 4
    assert cost_of(on_gpu | {"device": "cuda"}).device == "cuda"  # a guess: the process died of it
    assert asked == ["auto", "cuda:1", "cuda"]
    assert json.dumps(on_gpu)  # as a process is given it


def test_a_process_that_dies_of_it_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that names no dataset: whatever it dies of, nothing is waited for."""
    assert measure_cost._in_a_process({}) is None
