"""Training by fleets: the same numbers alone, together, and after an interruption at any step, for every method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rawls.algorithms.dpsgd import DpSgd
from rawls.analysis.read.load import load
from rawls.runners.config.compose import CONF, compose, resolve, run_id
from rawls.runners.config.specifications import build
from rawls.runners.store import environment
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.tracking.tracker import Tracker
from rawls.runners.training import fleet, recording, setup
from rawls.runners.training.fleet import train_fleet
from rawls.runners.training.metrics import group_metrics

SOLVERS = {"dp_oco_worst_group", "minimax_phased_erm"}  # test_solver
ALGORITHMS = sorted({path.stem for path in (CONF / "algorithm").glob("*.yaml")} - SOLVERS)
# One of each kind of state that is saved; the contracts test every method's, on a smaller problem.
KINDS = {"asc", "azb", "disk", "dpsgd", "dpsgd_global_adapt", "dpsur", "gdro", "ino_sgd", "noisy_sgd_mgr"}
every_method = pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name in KINDS else pytest.mark.nightly) for name in ALGORITHMS]
)
# What two equal trainings may differ in: when, where and how long.
TIMES = ("seconds",)


def configured(root: Path, *overrides: str) -> dict[str, Any]:
    """A run of 12 steps on the digits, with a reweighting every 4: small enough for every test, real data."""
    fixed = [
        "dataset=digits", "dataset.max_examples=200", "scale=smoke", "schedule.batch_size=16", "schedule.max_steps=12",
        "schedule.evaluations=3", "privacy=eps8", "optimizer.momentum=0.5", "tracking=off", f"results.root={root}",
    ]  # fmt: skip
    return resolve(compose([*fixed, *overrides]))


def train(root: Path, configs: list[dict[str, Any]], report: Any = lambda message: None) -> None:
    store = Store(root)
    folders = [folder for config in configs if (folder := store.claim(run_id(config), config))]
    try:
        train_fleet(configs, folders, report)
    finally:  # as the launcher does
        for folder in folders:
            if folder.held:
                folder.release()


def results(root: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Everything of a finished run but its times."""
    folder = root / "runs" / run_id(config)
    summary = json.loads((folder / "summary.json").read_text())
    return {
        "summary": {key: value for key, value in summary.items() if key not in TIMES},
        "history": (folder / "history.jsonl").read_text(),
        "ledger": (folder / "ledger.json").read_text(),
    }


class StopAt:
    """A report that interrupts the training at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, message: dict[str, Any]) -> None:
        if message["step"] == self.step:
            raise KeyboardInterrupt


@every_method
def test_a_resumed_run_equals_a_straight_one(tmp_path: Path, algorithm: str) -> None:
    """Interrupted at every step in turn: before, at and after evaluations, reweightings and sampling blocks."""
    straight = configured(tmp_path / "straight", f"algorithm={algorithm}")
    train(tmp_path / "straight", [straight])
    resumed = configured(tmp_path / "resumed", f"algorithm={algorithm}")
    for step in range(1, 12):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "resumed", [resumed], StopAt(step))
        assert Store(tmp_path / "resumed").state(run_id(resumed)) == "interrupted"
    train(tmp_path / "resumed", [resumed])
    assert results(tmp_path / "straight", straight) == results(tmp_path / "resumed", resumed)


@every_method
def test_a_run_is_the_same_alone_and_in_a_fleet(tmp_path: Path, algorithm: str) -> None:
    overrides = [(f"algorithm={algorithm}", f"seed={seed}", f"optimizer.lr={lr}") for seed, lr in ((0, 0.1), (1, 0.3))]
    together = [configured(tmp_path / "together", *run) for run in overrides]
    train(tmp_path / "together", together)
    for run in overrides:
        alone = configured(tmp_path / "alone", *run)
        train(tmp_path / "alone", [alone])
        assert results(tmp_path / "alone", alone) == results(tmp_path / "together", alone)


def test_a_fleet_interrupted_at_its_first_run_is_resumed_as_a_whole(tmp_path: Path) -> None:
    """The interrupt reaches one run first; the checkpoints of all must stand where their parameters do."""
    probes = ("probe.sampling_variance_every=3", "probe.group_gradients_every=4", "probe.group_gradients_rows=10")
    overrides = [("algorithm=azb", f"seed={seed}", *probes) for seed in (0, 1)]
    together = [configured(tmp_path / "resumed", *run) for run in overrides]
    for step in (3, 4, 8):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "resumed", together, StopAt(step))
    train(tmp_path / "resumed", together)
    for run in overrides:
        straight = configured(tmp_path / "straight", *run)
        train(tmp_path / "straight", [straight])
        assert results(tmp_path / "straight", straight) == results(tmp_path / "resumed", straight)


def test_it_is_written_down_how_many_runs_shared_the_seconds(tmp_path: Path) -> None:
    """Also by a run that was interrupted in a fleet, and ended alone."""
    first, second = [configured(tmp_path, "algorithm=dpsgd", f"seed={seed}") for seed in (0, 1)]
    alone = configured(tmp_path, "algorithm=dpsgd", "seed=2")
    train(tmp_path, [alone])
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, [first, second], StopAt(5))
    train(tmp_path, [first])
    found = load(tmp_path).runs.set_index("run_id")["fleet"]
    assert (found[run_id(alone)], found[run_id(first)]) == (1, 2)
    assert np.isnan(found[run_id(second)])


def test_runs_that_stand_at_different_steps_are_trained_to_their_end(tmp_path: Path) -> None:
    early = configured(tmp_path, "algorithm=dpsgd", "seed=0")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, [early], StopAt(5))
    fresh = configured(tmp_path, "algorithm=dpsgd", "seed=1")
    train(tmp_path, [early, fresh])
    assert Store(tmp_path).done() == sorted([run_id(early), run_id(fresh)])


def test_a_plan_only_run_trains_nothing_and_needs_no_data(tmp_path: Path) -> None:
    config = configured(
        tmp_path, "dataset=celeba", "dataset.max_examples=null", "algorithm=asc", "scale=paper",
        "schedule.max_steps=null", "schedule.batch_size=256", "schedule.plan_only=true", "data.root=nowhere",
    )  # fmt: skip
    train(tmp_path, [config])
    summary = Store(tmp_path).summary(run_id(config))
    assert summary["steps"] == 31_800
    assert "test" not in summary
    assert summary["plan"]["epsilon"] <= 8


def history_of(root: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (root / "runs" / run_id(config) / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_history_has_a_line_per_evaluation_and_part(tmp_path: Path) -> None:
    config = configured(tmp_path, "algorithm=asc")
    train(tmp_path, [config])
    rows = history_of(tmp_path, config)
    parts = ("valid", "train", "test")
    assert [(row["step"], row["split"]) for row in rows] == [(step, part) for step in (4, 8, 12) for part in parts]
    assert all(len(row["accuracy"]) == 10 and row["wga"] == min(row["accuracy"]) for row in rows)
    assert all(row["rows"] == sum(row["count"]) for row in rows)
    assert all(("group_weights" in row) == (row["split"] == "valid") for row in rows)
    assert all(abs(sum(row["group_weights"]) - 1) < 1e-9 for row in rows if row["split"] == "valid")


def accuracy_of_kept_weights(root: Path, config: dict[str, Any], chosen: np.ndarray) -> list[float]:
    """By group, of the model's own module with the run's final weights."""
    data, rows = setup.load(config), torch.from_numpy(chosen)
    module = build(config["model"], "model").build(data.inputs.shape, data.num_classes)
    module.load_state_dict(load_file(root / "runs" / run_id(config) / "weights.safetensors"), strict=True)
    with torch.no_grad():
        correct = module(data.inputs.gather(rows)).argmax(1) == data.labels[rows]
    return group_metrics(np.zeros(len(rows)), correct.numpy(), data.groups[rows].numpy(), 10)["accuracy"]


def test_large_parts_are_sampled_by_the_seed_and_the_last_test_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200 rows each: 170 for training, 180 for the test, of every group; equal to a plain evaluation of them."""
    monkeypatch.setattr(recording, "MOST_ROWS", {"train": 170, "test": 180})
    config = configured(tmp_path, "algorithm=dpsgd")
    train(tmp_path, [config])
    rows = {(row["step"], row["split"]): row for row in history_of(tmp_path, config)}
    data = setup.load(config)
    split = data.splits(config["seed"])
    assert [len(part) for part in split] == [200, 200, 200]
    sizes = {at: row["rows"] for at, row in rows.items()}
    assert sizes == {
        (step, part): number if (step, part) != (12, "test") else 200
        for step in (4, 8, 12)
        for part, number in (("valid", 200), ("train", 170), ("test", 180))
    }
    assert all(min(row["count"]) > 0 for row in rows.values())
    summary = Store(tmp_path).summary(run_id(config))
    for part in ("valid", "train", "test"):
        assert summary[part].items() <= rows[12, part].items()
    first, again, other = (recording.evaluated_rows(data, split, 10, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert not np.array_equal(first["train"], other["train"])
    assert set(first["train"]) < set(split.train) and set(first["test"]) < set(split.test)
    assert rows[12, "train"]["accuracy"] == accuracy_of_kept_weights(tmp_path, config, first["train"])


def test_metrics_of_private_rows_are_said_in_the_ledger(tmp_path: Path) -> None:
    config = configured(tmp_path, "algorithm=dpsgd")
    train(tmp_path, [config])
    assert recording.NOTE in json.loads(results(tmp_path, config)["ledger"])["assumptions"]


@pytest.mark.parametrize("engine", ["fused", "opacus_hooks"])
def test_the_weights_that_are_kept_are_those_that_were_tested(tmp_path: Path, engine: str) -> None:
    """In the model's own module: a file of its state_dict. Trained the same without them."""
    config = configured(tmp_path, "algorithm=dpsgd", f"engine={engine}")
    train(tmp_path, [config])
    folder = tmp_path / "runs" / run_id(config)
    tested = setup.load(config).splits(config["seed"]).test
    expected = accuracy_of_kept_weights(tmp_path, config, tested)
    assert Store(tmp_path).summary(run_id(config))["test"]["accuracy"] == expected
    assert verify(folder) == []

    without = configured(tmp_path / "without", "algorithm=dpsgd", f"engine={engine}", "results.weights=false")
    train(tmp_path / "without", [without])
    assert run_id(without) == run_id(config)
    assert not (tmp_path / "without" / "runs" / run_id(config) / "weights.safetensors").exists()
    assert results(tmp_path, config) == results(tmp_path / "without", without)


def test_public_state_may_hold_scalars_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come back with type, dtype and shape, and go on being counted."""
    start: dict[str, Any] = {
        "float64": np.float64(0.1), "float32": np.float32(0.1), "0-d": np.array(0.3), "python": 0.5,
        "count": np.int64(3), "vector": np.arange(2, dtype=np.float32),
    }  # fmt: skip
    kinds = {name: (type(value), np.asarray(value).dtype, np.shape(value)) for name, value in start.items()}

    def adapt(_self: DpSgd, _task: Any, _plan: Any, state: dict[str, Any], _private: Any) -> dict[str, Any]:
        assert {name: (type(value), np.asarray(value).dtype, np.shape(value)) for name, value in state.items()} == kinds
        return {name: (np.asarray(value) + 1).astype(kinds[name][1])[()] for name, value in state.items()} | {
            "0-d": np.array(state["0-d"] + 1), "python": state["python"] + 1,
        }  # fmt: skip

    def shown(_self: DpSgd, _task: Any, state: dict[str, Any]) -> np.ndarray:
        return np.concatenate([np.ravel(value) for value in state.values()])

    monkeypatch.setattr(DpSgd, "start", lambda self, task, plan: start)
    monkeypatch.setattr(DpSgd, "adapts_after", lambda self, task, step: True)
    monkeypatch.setattr(DpSgd, "adapt", adapt)
    monkeypatch.setattr(DpSgd, "group_weights", shown)
    straight = configured(tmp_path / "straight", "algorithm=dpsgd")
    train(tmp_path / "straight", [straight])
    resumed = configured(tmp_path / "resumed", "algorithm=dpsgd")
    for step in (3, 8):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "resumed", [resumed], StopAt(step))
    train(tmp_path / "resumed", [resumed])
    assert results(tmp_path / "straight", straight) == results(tmp_path / "resumed", resumed)
    last = history_of(tmp_path / "straight", straight)[-3]
    assert last["group_weights"][0] == pytest.approx(12.1)


class CrashAt(StopAt):
    """A report that ends the process, as far as the fleet can see: nothing is saved."""

    def __call__(self, message: dict[str, Any]) -> None:
        if message["step"] == self.step:
            raise SystemExit


def test_what_secure_noise_has_shown_is_never_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secure draws do not repeat: a resume from before an evaluation would show a second answer and charge one."""
    shown: list[dict[str, Any]] = []

    class Watched(Tracker):
        def log(self, row: Mapping[str, Any]) -> None:
            shown.append(dict(row))

    monkeypatch.setattr(fleet, "tracker", lambda config, run_id: Watched())
    config = configured(tmp_path, "algorithm=asc", "privacy.secure=true")
    for step in (4, 5, 9):
        with pytest.raises(SystemExit):
            train(tmp_path, [config], CrashAt(step))
    train(tmp_path, [config])
    history = (tmp_path / "runs" / run_id(config) / "history.jsonl").read_text().splitlines()
    assert [row["step"] for row in shown] == [4, 4, 4, 8, 8, 8, 12, 12, 12]
    assert [json.loads(line) for line in history] == shown


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"device": "cuda"}, "begun on cuda, .*: go on with device=cuda, or delete"),
        ({"format": fleet.CHECKPOINT_FORMAT + 1}, "another version of rawls, .*: go on with that one, or delete"),
        ({"format": None}, "another version of rawls, .*: go on with that one, or delete"),
    ],
)
def test_a_run_is_not_resumed_where_other_rows_or_noise_are_drawn(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    config = configured(tmp_path, "algorithm=dpsgd")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, [config], StopAt(5))
    folder = Store(tmp_path).claim(run_id(config), config)
    assert folder is not None
    checkpoint = folder.load_checkpoint()
    assert checkpoint is not None and checkpoint["device"] == "cpu"
    folder.save_checkpoint(checkpoint | changes)
    with pytest.raises(ValueError, match=sentence):
        train_fleet([config], [folder], lambda message: None)
    folder.release()


def test_runs_with_and_without_momentum_are_resumed_together(tmp_path: Path) -> None:
    moments = ("optimizer.momentum=0", "optimizer.momentum=0.9")
    configs = [configured(tmp_path / "resumed", "algorithm=dpsgd", moment) for moment in moments]
    for config in configs:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "resumed", [config], StopAt(5))
    train(tmp_path / "resumed", configs)
    for moment in moments:
        straight = configured(tmp_path / "straight", "algorithm=dpsgd", moment)
        train(tmp_path / "straight", [straight])
        assert results(tmp_path / "straight", straight) == results(tmp_path / "resumed", straight)


def test_the_commit_is_that_of_the_code_that_began_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed meanwhile did not train these runs."""
    head = "before"

    def git(_root: Path, *arguments: str) -> str:
        return {"rev-parse --verify": head, "rev-parse --show-toplevel": str(environment.ROOT)}.get(
            " ".join(arguments[:2]), ""
        )

    def commit(_message: dict[str, Any]) -> None:
        nonlocal head
        head = "meanwhile"

    monkeypatch.setattr(environment, "_git", git)
    environment.code_version.cache_clear()
    config = configured(tmp_path, "algorithm=dpsgd")
    train(tmp_path, [config], commit)
    environment.code_version.cache_clear()
    made = json.loads((tmp_path / "runs" / run_id(config) / "environment.json").read_text())
    assert (head, made["git_sha"]) == ("meanwhile", "before")


def test_no_tracker_stays_open_when_another_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B refuses to open a run twice, so one left open would be lost to the next attempt."""
    opened: list[str] = []

    class Watched(Tracker):
        def __init__(self, run_id: str) -> None:
            self.run_id = run_id

        def close(self) -> None:
            opened.remove(self.run_id)

    def watched(config: Mapping[str, Any], run_id: str) -> Tracker:
        if config["seed"] == 1:
            raise RuntimeError("no second run")
        opened.append(run_id)
        return Watched(run_id)

    monkeypatch.setattr(fleet, "tracker", watched)
    with pytest.raises(RuntimeError, match="no second run"):
        train(tmp_path, [configured(tmp_path, "algorithm=dpsgd", f"seed={seed}") for seed in (0, 1)])
    assert opened == []


@pytest.mark.parametrize("saving", [0.0, 0.01, 1.0, 1.1, 7.0, 300.0])
def test_saving_takes_a_twentieth_of_the_time_at_most(saving: float) -> None:
    pause = fleet.pause_between_checkpoints(saving)
    assert saving / (saving + pause) <= 0.05 + 1e-12
    assert pause == 20.0 or saving > 1.0
