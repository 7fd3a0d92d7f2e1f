"""What is done is said with its date; `retrain=true` trains it again, and nothing that was trained is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.schedule.launcher import planned, train, what_is_done
from rawls.runners.store.checksums import CHECKSUMS, of_files
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import ENVIRONMENT, SUMMARY
from rawls.runners.sweeps.experiments import plan
from rawls.runners.sweeps.labels import label_of

SMALL = [
    *("dataset=digits", "algorithm=dpsgd", "model=logistic", "scale=smoke", "schedule.max_steps=2"),
    *("schedule.evaluations=1", "tracking=off", "device=cpu"),
]


def configured(root: Path, *overrides: str) -> dict[str, Any]:
    return resolve(compose([*SMALL, f"results.root={root}", *overrides]))


def date(store: Store, run: str, finished: str) -> None:
    folder = store.folder(run)
    (folder / ENVIRONMENT).write_text(json.dumps({"finished": finished}), encoding="utf-8")
    names = [path.name for path in folder.iterdir() if path.name != CHECKSUMS]
    (folder / CHECKSUMS).write_text(of_files(folder, names))


def done(store: Store, config: dict[str, Any], finished: str) -> str:
    """A run as if it had been trained then."""
    store.folder(run_id(config)).mkdir(parents=True)
    (store.folder(run_id(config)) / SUMMARY).write_text("{}")
    date(store, run_id(config), finished)
    return run_id(config)


def test_a_run_is_trained_again_and_the_old_one_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, store = configured(tmp_path), Store(tmp_path)
    this = run_id(config)
    assert train([config], command="test").done == [this]
    date(store, this, "2026-11-19T07:31:59+00:00")
    before = store.summary(this)
    assert train([config], command="test").skipped == [this]
    assert (
        f"{label_of(config)}: trained 2026-11-19 07:31 (UTC), nothing to do; retrain=true trains again"
        in capsys.readouterr().err
    )
    again = configured(tmp_path, "retrain=true")
    assert run_id(again) == this
    assert train([again], command="test").done == [this]
    assert "trained again: 1 run of 2026-11-19 07:31 (UTC), put aside in" in capsys.readouterr().err
    assert store.trained_at(this) != "2026-11-19 07:31"
    assert store.summary(this)["test"] == before["test"]
    assert [path.name for path in (tmp_path / "replaced").iterdir()] == [f"{this}.1"]
    assert json.loads((tmp_path / "replaced" / f"{this}.1" / "summary.json").read_text())["run_id"] == this
    # What was interrupted goes on without the option: nothing else is moved.
    assert train([config], command="test").skipped == [this] and len(list((tmp_path / "replaced").iterdir())) == 1


def test_a_damaged_run_is_put_aside_and_trained_to_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one whose accuracy somebody has improved by hand."""
    config, store = configured(tmp_path), Store(tmp_path)
    this = run_id(config)
    train([config], command="test")
    before = store.summary(this)
    forged = json.loads((store.folder(this) / SUMMARY).read_text()) | {"test": {"wga": 0.99, "avg": 0.99}}
    (store.folder(this) / SUMMARY).write_text(json.dumps(forged))
    with pytest.raises(ValueError, match="summary.json is not what was written"):
        store.summary(this)
    capsys.readouterr()
    assert train([config], command="test").done == [this]
    said = capsys.readouterr().err
    assert f"runs/{this}/summary.json is not what was written" in said and "to be trained again: 1 damaged" in said
    assert store.summary(this)["test"] == before["test"]
    assert json.loads((tmp_path / "replaced" / f"{this}.1" / SUMMARY).read_text()) == forged


def test_nothing_is_moved_unless_all_can_be_trained(tmp_path: Path) -> None:
    store = Store(tmp_path)
    good, bad = (configured(tmp_path, "retrain=true", f"schedule.batch_size={size}") for size in (16, 50_000))
    this = done(store, good, "2026-11-19T07:31:00+00:00")
    with pytest.raises(ValueError, match="batch_size=50000"):
        train([good, bad], command="test")
    assert store.state(this) == "done" and not (tmp_path / "replaced").exists()


def test_a_sweep_counts_what_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    configs = [configured(tmp_path, f"seed={seed}") for seed in range(3)]
    runs = [planned(config) for config in configs]
    assert what_is_done(runs, store) == ""
    done(store, configs[0], "2026-11-18T23:30:00-01:00")
    assert (
        what_is_done(runs, store) == "1 of 3 runs were trained 2026-11-19 00:30 (UTC); retrain=true trains them again"
    )
    done(store, configs[1], "2026-11-20T10:00:00+00:00")
    done(store, configs[2], "garbage")
    assert what_is_done(runs[:2], store) == (
        "all 2 runs: trained between 2026-11-19 00:30 and 2026-11-20 10:00 (UTC), nothing to do; "
        "retrain=true trains again"
    )
    assert len(store.trained_at(runs[2].run_id)) == 16  # the file system's, where the environment says nothing


def test_two_launchers_move_a_run_once(tmp_path: Path) -> None:
    first, second = Store(tmp_path), Store(tmp_path)
    this = done(first, configured(tmp_path), "2026-11-19T07:31:00+00:00")
    assert first.put_aside(this) == tmp_path / "replaced" / f"{this}.1"
    assert second.put_aside(this) is None
    assert first.state(this) == "missing" and first.states() == {}
    done(first, configured(tmp_path), "2026-11-20T07:31:00+00:00")
    assert second.put_aside(this) == tmp_path / "replaced" / f"{this}.2"


def test_a_target_is_named_without_it() -> None:
    asked = ["experiment=asc/calibration", "algorithm=dpsgd"]
    plain, again = plan(asked), plan([*asked, "retrain=true"])
    assert (plain.variant, plain.command, plain.changed) == (again.variant, again.command, again.changed)
    assert [run.run_id for run in plain.runs] == [run.run_id for run in again.runs]
    assert all(run.config["retrain"] for run in again.runs)
