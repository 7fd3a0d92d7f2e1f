"""What reproduce computes beside a manifest: plans at a given noise, and an attack on a target's own runs."""

from pathlib import Path

import pandas as pd
import pytest

from rawls.analysis.draw.render import render
from rawls.runners.cli.commands import main
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.computed import compute
from rawls.runners.sweeps.experiments import plan, write_manifest
from rawls.runners.training.fleet import train_fleet

SHADOWS = """
title: Shadows
seeds: 3
common:
  dataset: digits
  dataset.half_of: 0
  results.scores: true
  owners: digits
  model: logistic
  schedule.batch_size: 128
blocks:
  - {label: IDP-SGD, overrides: {algorithm: idp_sgd}}
  - {label: INO-SGD, overrides: {algorithm: ino_sgd}}
draw: {kind: membership_figure}
"""


def test_the_rates_and_thresholds_that_ino_sgd_prints_are_computed_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "ino/fig10", "tracking=off", f"results.root={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert [line.split("|")[6].strip() for line in told.splitlines() if "| ε = " in line] == [
        "0.1933", "0.0189", "1.5894", "0.3278",
    ]  # fmt: skip
    assert "q = 0.02" in told  # the curve that has the printed 3.29
    plans = pd.read_csv(next(tmp_path.rglob("plans.csv")))
    growth = plans.dropna().groupby(["spends", "fixed"])["value"].apply(lambda values: (values.diff()[1:] >= 0).all())
    assert len(growth) == 8 and growth.all()  # a larger budget buys more


def test_the_runs_of_a_target_attack_each_other_and_one_alone_does_not(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "experiment").mkdir(parents=True)
    (own / "experiment" / "mine.yaml").write_text(SHADOWS)
    options = ["scale=paper", "schedule.max_steps=5", "schedule.evaluations=1", "tracking=off"]
    asked = plan(
        ["experiment=mine", *options, f"results.root={tmp_path}"], [f"hydra.searchpath=[file://{own.as_posix()}]"]
    )
    store = Store(tmp_path)
    for run in [run for run in asked.runs if run.label == "INO-SGD" or run.config["seed"] == 0]:
        folder = store.claim(run.run_id, run.config)
        assert folder is not None
        train_fleet([run.config], [folder], lambda message: None)
    manifest = write_manifest(asked, tmp_path)
    compute(asked, manifest.parent)
    table = pd.read_csv(manifest.parent / "membership.csv")
    assert set(table["method"]) == {"INO-SGD"} and (table["runs"] == 3).all()
    assert table["part"].value_counts().to_dict() == {"group": 4 * 10, "owner": 4 * 2, "all": 4}
    told = render(manifest).text
    assert "owner 1 (ε = 2)" in told and "UNFINISHED: 4 of 6 runs" in told
