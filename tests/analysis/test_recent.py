"""Runs of all kinds in the frames, the tables, the report and comparisons."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from rawls import analysis
from rawls.analysis.compare import print_comparison
from rawls.analysis.compare.comparison import compare
from rawls.analysis.draw.render import render
from rawls.analysis.metrics.privacy_spent import Privacy, privacy
from rawls.analysis.pages import report
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.settings import load as load_settings
from tests.analysis.metrics.test_privacy_spent import texts
from tests.analysis.pages.pages import Page
from tests.analysis.recent import MEANING, recent_store
from tests.analysis.stores import run_id, write_run, write_unfinished

DATA = "Unbalanced\N{NO-BREAK SPACE}MNIST"


def spent(root: Path) -> Privacy:
    drawn, store = Manifest.read(recent_store(root)), analysis.load(root)
    found = privacy(store, drawn.join(store), drawn.methods)
    assert found is not None
    return found


def test_frames_have_a_claim_beside_what_is_proven_and_no_epsilon_of_open_runs(results_root: Path) -> None:
    recent_store(results_root, seeds=1)
    runs = analysis.load(results_root).runs.set_index("algorithm")
    assert dict(runs["private"]) == {"dpsgd": True, "sgd": False, "dpsur": True, "dp_is_sgd": True, "idp_sgd": True}
    open_run, claiming, given = (runs.loc[name] for name in ("sgd", "dpsur", "dp_is_sgd"))
    epsilons = ["epsilon_target", "epsilon_max", "epsilon_reported", "epsilon_spent", "claim_epsilon", "epsilon"]
    assert open_run[epsilons].isna().all() and not np.isinf(runs[epsilons].astype(float)).any().any()
    assert (claiming["claim_epsilon"], claiming["claim_rule"], claiming["claim_meaning"]) == (
        0.61, "accepted_only", MEANING,
    )  # fmt: skip
    assert (claiming["epsilon_max"], claiming["epsilon_spent"]) == (0.99, 0.8)  # an upper bound, and what was spent
    assert runs.loc["dpsgd", "claim_epsilon"] == 0.99 and pd.isna(runs.loc["dpsgd", "claim_rule"])
    assert np.isnan(given["epsilon_target"]) and given["epsilon_max"] == 3.25


def test_a_plan_knows_its_claim_and_a_rule_may_have_no_finite_epsilon(results_root: Path) -> None:
    claim = {"rule": "gdp_clt", "epsilon": None, "delta": 1e-5, "note": ""}
    write_run(results_root, "a", provenance="plan only", plan={"claim": claim})
    run = analysis.load(results_root).runs.iloc[0]
    assert run["claim_rule"] == "gdp_clt" and np.isnan(run["claim_epsilon"]) and run["claim_delta"] == 1e-5


def test_owners_have_a_row_each_with_budget_plan_and_ledger(results_root: Path) -> None:
    recent_store(results_root, seeds=1)
    rows = analysis.load(results_root).owners
    assert rows.to_dict("records") == [
        {"run_id": run_id("idp_sgd", 0), "owner": number, "owner_name": name, "budget": budget, "epsilon": planned,
         "epsilon_spent": spent}
        for number, (name, budget, planned, spent) in enumerate([("old", 0.5, 0.49, 0.48), ("young", 1.0, 0.98, 0.97)])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "private"),
    [
        ({"privacy": {"epsilon": None, "noise_multiplier": None}}, False),
        ({"privacy": {"epsilon": None, "noise_multiplier": 1.1}}, True),
        ({"privacy": {"epsilon": None}, "owners": {"_target_": "rawls.datasets.core.owners.ByClass"}}, True),
        ({"privacy": {"epsilon": 1.0}}, True),
    ],
)
def test_a_run_in_training_is_known_to_be_open_or_private(
    results_root: Path, config: dict[str, Any], private: bool
) -> None:
    path = write_unfinished(results_root, "a", "running") / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | config))
    assert analysis.load(results_root).runs["private"].iloc[0] == private


def test_tables_say_no_privacy_and_set_claim_and_proven_side_by_side(results_root: Path) -> None:
    found = spent(results_root)
    rows = {row[0]: row[4:] for row in texts(found.epsilons)}
    assert rows["sgd"] == ["– (no privacy)", "–", "–", "–", "–", "–", "no privacy", "2"]
    assert rows["dpsur"][3:6] == ["0.610 (accepted_only)", "0.990", "0.800"]
    assert rows["dp_is_sgd"][0] == "– (noise 1.1)"
    assert [row[0].text for row in found.epsilons.rows if row[8].bold] == ["dpsur"]
    assert found.epsilons.notes == [f"Rules of claims: accepted_only: {MEANING}."]
    assert "sgd" not in {row[0] for row in texts(found.groups) + texts(found.releases)}
    assert texts(found.releases)[0][2:4] == ["gradient, with counts", "uniform poisson"]
    assert found.assumptions[-1] == "sgd: trained without privacy, nothing of the training data is protected"


def test_few_owners_are_named_and_many_stand_together_by_their_budget(results_root: Path) -> None:
    # Right on 70 % of the 10 rows of group 0; on 60 % of 20 and half of 5 of the others.
    assert texts(spent(results_root).owners) == [
        ["idp_sgd", DATA, "old", "0.5", "0.490", "0.480", "70.0 ± 0.0"],
        ["idp_sgd", DATA, "young", "1", "0.980", "0.970", "58.0 ± 0.0"],
    ]
    plan = {"owner_budgets": [0.5, 1.0] * 500, "epsilon_per_owner": [0.4, 0.9] * 499 + [0.6, 1.0]}
    write_run(results_root, run_id("idp_sgd", 1), algorithm="idp_sgd", seed=1, plan=plan)
    drawn, store = Manifest.read(next(results_root.rglob("manifest.json"))), analysis.load(results_root)
    found = privacy(store, drawn.join(store), drawn.methods)
    assert found is not None
    assert texts(found.owners) == [
        ["idp_sgd", DATA, "500 owners", "0.5", "0.400 – 0.600, above the budget", "0.480", "70.0 (n=1/2)"],
        ["idp_sgd", DATA, "500 owners", "1", "0.900 – 1.000", "0.970", "58.0 (n=1/2)"],
    ]


def test_drawings_and_the_report_show_all_kinds(results_root: Path) -> None:
    path = recent_store(results_root)
    drawn = render(path)
    assert "No privacy: sgd." in drawn.text
    assert "dpsur on Unbalanced MNIST: 0.61 (accepted_only), proven 0.99" in drawn.text
    page = Page(report.text(results_root, [path]))
    assert page.wrong == []
    told = "\n".join(page.lines)
    assert "Epsilon of each owner" in told and "– (no privacy)" in told and "0.610 (accepted_only)" in told
    assert "inf" not in told.replace("information", "").split()


def test_private_and_open_runs_are_compared_and_only_the_epsilon_is_one_sided(results_root: Path) -> None:
    recent_store(results_root)
    text = print_comparison.compare_text(results_root, "sgd", "dpsur")
    assert "sgd: no privacy" in text and "no privacy against target ε = 1" in text
    assert f"dpsur claims by accepted_only: {MEANING}" in " ".join(text.split())
    store = analysis.load(results_root)
    cells = compare(store.runs, "sgd", "dpsur").set_index("metric")
    assert cells.loc["wga", "difference"] == pytest.approx(-2.0)
    assert cells.loc["epsilon", "other_mean"] == 0.99 and np.isnan(cells.loc["epsilon", "one_mean"])
    assert cells.loc["claim", "other_mean"] == 0.61
    assert "claim" not in set(compare(store.runs, "sgd", "dpsgd")["metric"])  # no rule but what is proven


def test_an_open_method_stands_against_each_budget_of_a_private_one(results_root: Path) -> None:
    recent_store(results_root, seeds=1)
    write_run(results_root, "e", algorithm="dpsgd", plan={"target_epsilon": 8.0}, wga=0.7, avg=0.8)
    config = (results_root / "runs" / run_id("dpsgd", 0) / "config.yaml").read_text()
    (results_root / "runs" / "e" / "config.yaml").write_text(config.replace("epsilon: 1.0", "epsilon: 8.0"))
    runs = analysis.load(results_root).runs
    for known in (load_settings(results_root, runs["run_id"]), {}):
        for names, sign in ((("sgd", "dpsgd"), 1), (("dpsgd", "sgd"), -1)):
            cells = compare(runs, *names, settings=known)
            found = cells[cells["metric"] == "wga"].set_index("setting")["difference"] * sign
            assert len(found) == 2
            assert found.filter(like="target ε = 1").item() == pytest.approx(2.0)
            assert found.filter(like="target ε = 8").item() == pytest.approx(-18.0)
