"""Shadow runs on halves, attacked: what a model remembers is found, and nothing where there is nothing."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.draw.attacks import draw_attack
from rawls.runners.audit.lira import Options, audit
from rawls.runners.config.errors import ConfigError

SMALL = ["dataset=digits", "dataset.max_examples=300", "model=logistic", "schedule.batch_size=32", "tracking=off"]
HERE = ["hydra.launcher.workers=1", "schedule.evaluations=1"]


def attacked(root: Path, *overrides: str, shadows: int = 8) -> pd.DataFrame:
    report = audit([*SMALL, *HERE, f"results.root={root}", *overrides], Options(shadows=shadows))
    table = pd.read_csv(report.files[0])
    assert len(table) == len(report.rows)
    return table.set_index(["attack", "part", "name"])


@pytest.mark.nightly
def test_what_models_remember_is_found_and_nothing_where_they_learn_nothing(tmp_path: Path) -> None:
    """Six shadows of open SGD on 150 of 300 rows, seeds 0 to 5, at a high rate and at one that changes nothing.

    1,800 memberships: by chance an AUROC is 1/2 with a standard error of 0.014. Above 0.57 it is found, within 0.06 of
    1/2 it is not. The two are attacked apart, and drawn in one figure.
    """
    table = attacked(tmp_path, "algorithm=sgd", "optimizer.lr=4,1e-7", "schedule.epochs=12", shadows=6)
    of_all = table.xs("all rows", level="name")
    learnt = of_all["method"].str.endswith("lr=4")
    assert len(of_all) == 8 and learnt.sum() == 4
    assert (of_all["auroc"][learnt] > 0.57).all() and (abs(of_all["auroc"][~learnt] - 0.5) < 0.06).all()
    assert (of_all["members"] + of_all["others"] + of_all["lost"] == 6 * 300).all()
    assert of_all["lost"].max() <= 0.2 * 6 * 300  # rows that no other run left out, or trained on
    assert len(table.xs("group", level="part")) == 2 * 4 * 10
    assert table[["epsilon", "delta", "auroc_bound", "bound_at_0.01"]].isna().all().all()
    assert table.xs("digit 8", level="name")["tpr_at_0.001"].isna().all()  # too few rows to see such a rate
    text, _ = draw_attack(tmp_path / "audits" / "lira")
    assert text.count("all rows") == 8


@pytest.mark.nightly
def test_a_private_method_is_held_against_its_epsilon_by_group_and_owner(tmp_path: Path) -> None:
    """The owners' epsilons are their own; and what was trained is not trained again, which needs its scores."""
    asked = ["algorithm=idp_sgd", "owners=digits", "schedule.max_steps=30"]
    table = attacked(tmp_path, *asked, shadows=4)
    trained = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir() if path.is_dir()}
    assert len(trained) == 4
    owners = table.xs("owner", level="part").reset_index()
    assert set(owners["epsilon"].round(1)) == {2.0, 8.0}
    assert (table["bound_at_0.01"] > table["tpr_at_0.01"].fillna(0)).all() and (table["auroc_bound"] < 1).all()
    again = attacked(tmp_path, *asked, shadows=4)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir() if path.is_dir()} == trained
    np.testing.assert_array_equal(again["auroc"], table["auroc"])
    text, files = draw_attack(tmp_path / "audits" / "lira")
    assert text.count("idp_sgd on digits") == 4 + 10 + 2 and all(path.exists() for path in files)
    (gone := next((tmp_path / "runs").glob("*/scores.npz"))).unlink()
    with pytest.raises(ConfigError, match=f"run {gone.parent.name} has kept no scores.npz: .* retrain=true"):
        attacked(tmp_path, *asked, shadows=4)
