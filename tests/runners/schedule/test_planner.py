from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.runners.process import lifecycle
from rawls.runners.process.worker import Fleet, PlannedRun
from rawls.runners.schedule import planner
from rawls.runners.schedule.planner import Cost, Estimate, gpus_for, measured, pack_fleets, places

GIB = 2.0**30


def planned(number: int, key: str = "a", device: str = "cpu") -> PlannedRun:
    return PlannedRun(run_id=str(number), config={"device": device}, label="", fleet_key=key)


def in_a_row(made: list[Fleet]) -> list[PlannedRun]:
    return sorted((run for fleet in made for run in fleet), key=lambda run: int(run.run_id))


def busiest(made: list[Fleet], workers: int, estimate: Callable[[PlannedRun], Estimate]) -> float:
    """When the last worker ends, each taking the next fleet as soon as it is free."""
    free_at = [0.0] * workers
    for fleet in made:
        members = [estimate(run) for run in fleet]
        first = free_at.index(min(free_at))
        free_at[first] += max(one.shared_seconds for one in members) + sum(one.seconds for one in members)
    return max(free_at)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv(planner.VISIBLE, "")  # for it to be restored
    monkeypatch.delenv(planner.VISIBLE)


@pytest.mark.parametrize(
    ("keys", "workers", "sizes"),
    [
        ("a", 2, [1]),
        ("aaaaaaaaaaaaaaa", 2, [8, 7]),
        ("aaabbbcccdddeee", 2, [3, 3, 3, 3, 2, 1]),
        ("aaaaaaaab", 2, [4, 4, 1]),
        ("aaaa", 8, [1, 1, 1, 1]),
        ("a" * 40, 1, [16, 16, 8]),
        ("a" * 1000, 2, [16] * 62 + [8]),
    ],
)
def test_fleets_are_large_of_one_key_and_keep_all_workers_busy(keys: str, workers: int, sizes: list[int]) -> None:
    runs = [planned(number, key) for number, key in enumerate(keys)]
    made = pack_fleets(runs, workers=workers)
    assert [len(fleet) for fleet in made] == sizes
    assert in_a_row(made) == runs
    assert all(len({run.fleet_key for run in fleet}) == 1 for fleet in made)


def test_no_runs_make_no_fleets() -> None:
    assert pack_fleets([], workers=2) == []


def test_the_longest_fleet_comes_first_whatever_its_size() -> None:
    """Three cheap runs of a key, and one that takes longer than all of them."""
    runs = [planned(0), planned(1), planned(2), planned(3, "b")]
    made = pack_fleets(runs, workers=1, estimate=lambda run: estimate(steps=100 if run.fleet_key == "b" else 10))
    assert [[run.run_id for run in fleet] for fleet in made] == [["3"], ["0", "1", "2"]]


def estimate(steps: int = 10, batch: float = 8.0, method: str = "", cost: Cost | None = None) -> Estimate:
    return Estimate(cost=cost or Cost(seconds_per_sample=1.0), steps=steps, batch=batch, method=method)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(1, 300)), min_size=1, max_size=60),
    st.integers(1, 9),
    st.sampled_from([0.0, 1.0, 50.0]),
)
def test_every_run_is_in_one_fleet_and_workers_end_together_but_for_a_run(
    drawn: list[tuple[str, int, int]], workers: int, shared: float
) -> None:
    """Graham's bound for single runs, and the idle time that is accepted for larger fleets."""
    runs = [planned(number, key) for number, (key, _, _) in enumerate(drawn)]

    def said(run: PlannedRun) -> Estimate:
        _, steps, batch = drawn[int(run.run_id)]
        return estimate(steps, batch, cost=Cost(seconds=shared, seconds_per_sample=1.0))

    made = pack_fleets(runs, workers=workers, estimate=said)
    assert in_a_row(made) == runs
    assert all(1 <= len(fleet) <= 16 and len({run.fleet_key for run in fleet}) == 1 for fleet in made)
    alone = [busiest([(run,)], 1, said) for run in runs]
    bound = sum(alone) / workers + (1 - 1 / workers) * max(alone)
    assert busiest(made, workers, said) <= bound * 1.03 * (1 + 1e-6)


def test_runs_that_share_a_kernel_are_not_torn_apart_for_nothing() -> None:
    """A step costs the same for 1 run and for 16: two fleets of 16 on two workers are as good as it gets."""
    runs = [planned(number) for number in range(32)]
    made = pack_fleets(runs, workers=2, estimate=lambda run: estimate(cost=Cost(seconds=1.0, seconds_per_run=1e-6)))
    assert [len(fleet) for fleet in made] == [16, 16]


def test_like_runs_lie_beside_each_other() -> None:
    """What differs in its batch is padded, and what differs in its method takes kernels of its own."""
    kinds = [(8.0, "asc"), (2.0, "prop"), (8.0, "dpsgd")]

    def kind(run: PlannedRun) -> tuple[float, str]:
        return kinds[int(run.run_id) % 3]

    (made,) = pack_fleets(
        [planned(number) for number in range(9)],
        workers=1,
        estimate=lambda run: estimate(batch=kind(run)[0], method=kind(run)[1]),
    )
    assert [int(run.run_id) for run in made] == [0, 3, 6, 2, 5, 8, 1, 4, 7]


@pytest.mark.parametrize(
    ("gib_per_run", "workers", "largest"),
    [(0.1, 1, 16), (1.0, 1, 7), (1.0, 2, 3), (3.0, 2, 1), (9.0, 2, 1)],
)
def test_fleets_side_by_side_stay_inside_what_the_machine_has(gib_per_run: float, workers: int, largest: int) -> None:
    """Of 10 GiB, 8 are shared out; a worker takes 1 before its first run."""
    cost = Cost(seconds_per_run=1.0, bytes=GIB, bytes_per_run=gib_per_run * GIB, room=10 * GIB)
    runs = [planned(number) for number in range(64)]
    made = pack_fleets(runs, workers=workers, estimate=lambda run: estimate(cost=cost))
    assert max(map(len, made)) == largest
    assert in_a_row(made) == runs


@pytest.mark.parametrize(("gib_per_run", "workers"), [(0.1, 7), (1.0, 4), (5.0, 1), (50.0, 1)])
def test_there_are_as_many_workers_as_cores_and_memory_allow(
    gib_per_run: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "num_cores", lambda: 12)
    cost = Cost(seconds_per_run=1.0, bytes=GIB, bytes_per_run=gib_per_run * GIB, room=10 * GIB)
    made = places([planned(number) for number in range(64)], workers=None, estimate=lambda run: estimate(cost=cost))
    assert made == [{}] * workers
    asked = places([planned(number) for number in range(64)], workers=3, estimate=lambda run: estimate(cost=cost))
    assert asked == [{}] * 3


def test_there_are_no_more_workers_than_runs() -> None:
    assert len(places([planned(0), planned(1)], workers=9)) == 2


def on_gpus(run: PlannedRun) -> Estimate:
    """50 MiB a run, of two GPUs with 16 GiB each."""
    cost = Cost(seconds=1.0, bytes=GIB, bytes_per_run=GIB / 20, room=16 * GIB, device="cuda", devices=2)
    return Estimate(cost=cost)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_each_gpu_has_one_worker_that_sees_no_other_and_is_filled(device: str) -> None:
    runs = [planned(number, device=device) for number in range(256)]
    assert places(runs, workers=None, estimate=on_gpus) == [{planner.VISIBLE: "0"}, {planner.VISIBLE: "1"}]
    assert [len(fleet) for fleet in pack_fleets(runs, workers=2, estimate=on_gpus)] == [128, 128]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("workers", "largest"), [(1, 118), (2, 118), (3, 54), (4, 54)])
def test_what_a_gpu_has_is_shared_by_the_workers_on_it(workers: int, largest: int) -> None:
    """Twice the memory a run: 16 x 0.8 - 1 GiB for one worker, half of 16 x 0.8, less 1, for each of two."""
    runs = [planned(number, device="cuda") for number in range(1000)]
    twice = replace(on_gpus(runs[0]), cost=replace(on_gpus(runs[0]).cost, bytes_per_run=GIB / 10))
    made = places(runs, workers=workers, estimate=lambda run: twice)
    assert [place[planner.VISIBLE] for place in made] == ["0", "1", "0", "1"][:workers]
    assert max(map(len, pack_fleets(runs, workers=workers, estimate=lambda run: twice))) == largest


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("visible", "seen"),
    [(None, ("0", "1")), ("3,5", ("3", "5")), ("GPU-aa, GPU-bb", ("GPU-aa", "GPU-bb")), ("4,5,6", ("4", "5"))],
)
def test_the_gpus_are_those_that_this_process_was_given(
    visible: str | None, seen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv(planner.VISIBLE, visible)
    assert gpus_for([planned(0, device="auto")]) == seen


@pytest.mark.usefixtures("two_gpus")
def test_a_run_that_names_its_gpu_finds_it_there() -> None:
    """With one worker: two on the same GPU would share its memory."""
    runs = [planned(number, device="cuda:1") for number in range(3)]
    assert places(runs, workers=None, estimate=on_gpus) == [{}]
    assert gpus_for([planned(0, device="cpu")]) == ()


def test_without_a_gpu_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpus_for([planned(0, device="auto")]) == ()


def test_what_trains_no_model_is_not_measured() -> None:
    assert measured(planned(0)) == planner.UNMEASURED
