from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.config.compose import compose, resolve
from rawls.runners.config.errors import ConfigError
from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule import launcher
from rawls.runners.schedule.launcher import Outcome, planned, preflight, train
from rawls.runners.store.results_store import Store

SMALL = ("dataset=digits", "scale=smoke", "tracking=off", "algorithm=dpsgd")


def refused(store: Store, *overrides: str) -> str:
    """What preflight says of a run."""
    with pytest.raises(ConfigError) as caught:
        preflight([planned(resolve(compose([*SMALL, *overrides])))], store)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["device=cuda"], "device=cuda was asked for, but torch sees no CUDA device"),
        (["schedule.batch_size=100000"], "schedule.batch_size=100000 must lie between 1 and the"),
        (["privacy.delta=0.1"], "privacy.delta=0.1 must be positive and below 1/n"),
        (
            ["model=digits_cnn", "dataset=bank_fraud", "dataset.provenance=simulated"],
            "digits_cnn takes images",
        ),
    ],
)
def test_what_cannot_be_trained_is_said_of_the_run_before_any_starts(
    overrides: list[str], sentence: str, results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = refused(Store(results_root), *overrides)
    label, _, rest = said.partition(", seed 0: ")
    assert label.startswith("dpsgd on ") and rest.startswith(sentence)


def test_data_that_are_not_the_real_ones_are_told_before_anything_is_trained(
    results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "launch", lambda runs, **_: Outcome())
    simulated = ["dataset=bank_fraud", "dataset.max_examples=2000", f"data.root={tmp_path}", "algorithm=dpsgd"]
    runs = [[*simulated, "seed=0"], [*simulated, "seed=1"], [*SMALL]]
    common = ["scale=smoke", "tracking=off", f"results.root={results_root}"]
    train([resolve(compose([*common, *run])) for run in runs], command="")
    said, _, then = capsys.readouterr().err.partition("\n")
    assert said == "dpsgd on bank_fraud + dpsgd on digits, ε=8, 3 runs: checking data, model and budget"
    assert then == (
        f"bank_fraud: no real files under data.root={tmp_path}, so a SIMULATED twin is trained; "
        "see `rawls data bank_fraud`\n"
    )


def test_a_run_that_is_done_is_not_looked_at_again(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned(resolve(compose([*SMALL, "schedule.batch_size=100000"])))
    store = Store(results_root)
    with pytest.raises(ConfigError):
        preflight([run], store)
    (results_root / "runs" / run.run_id).mkdir()
    preflight([run], store)


def test_every_run_is_checked_before_the_first_is_launched(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []

    def launch(runs: Sequence[PlannedRun], **_: Any) -> Outcome:
        launched.append(len(runs))
        return Outcome()

    monkeypatch.setattr(launcher, "launch", launch)
    good, bad = (
        resolve(compose([*SMALL, f"results.root={results_root}", f"schedule.batch_size={size}"]))
        for size in (8, 100000)
    )
    with pytest.raises(ConfigError, match="schedule.batch_size=100000"):
        train([good, bad], command="")
    assert launched == []
    assert train([good], command="") == Outcome()
    assert launched == [1]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"results\.root=.*file cannot be written"):
        preflight([], Store(tmp_path / "file"))


def test_devices_are_looked_for_only_where_runs_are_trained(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that sends its runs to a cluster needs no GPU for them."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = planned(resolve(compose([*SMALL, "device=cuda"])))
    assert preflight([run], Store(results_root), here=False) == []
    with pytest.raises(ConfigError, match="device=cuda"):
        preflight([run], Store(results_root))


def test_a_run_that_is_to_be_alone_shares_its_fleet_with_none() -> None:
    together = [planned(resolve(compose([*SMALL, f"seed={seed}"]))) for seed in (0, 1)]
    alone = [planned(resolve(compose([*SMALL, f"seed={seed}", "alone=true"]))) for seed in (0, 1)]
    assert len({run.fleet_key for run in together}) == 1
    assert len({run.fleet_key for run in [*together, *alone]}) == 3
    assert [run.run_id for run in together] == [run.run_id for run in alone]


def test_a_sweep_without_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are no runs"):
        train([], command="")
