"""The evaluation that a table shows, by hand: two private runs and an open one of three evaluations each."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rawls import analysis
from rawls.analysis.compare.print_comparison import compare_text
from rawls.analysis.draw.render import draw
from rawls.analysis.metrics.choose_epoch import BEST_VALID_ROBUST, BEST_VALID_WGA, LAST, best_steps
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from tests.analysis.compare.two_sides import write_configured
from tests.analysis.stores import entry, manifest, write_run, write_unfinished

CHOSEN = "EPOCHS CHOSEN ON VALIDATION DATA, WHICH NO ε OF THE PRIVATE RUNS COVERS"
WORDS = "evaluation of highest validation WGA, the latest among equals"
# Per run, at steps 10, 20 and 30: validation and test accuracies of three groups.
ACCURACIES: dict[str, list[tuple[list[Any], list[Any]]]] = {
    # Highest at 20: WGA 0.5 there.
    "rise": [([0.9, 0.3, 0.4], [0.8, 0.2, 0.3]), ([0.8, 0.5, 0.6], [0.7, 0.4, 0.5]), ([0.9, 0.4, 0.9], [1, 0.1, 1])],
    # The same at 10 and 20, by different groups: the later one counts.
    "tie": [([0.6, 0.9, 0.9], [0.1, 1, 1]), ([0.9, 0.6, 0.9], [0.6, 0.7, 0.8]), ([0.9, 0.5, 0.9], [0.2, 1, 1])],
    # No WGA at 20, where the third group was not there; the last is the best.
    "gap": [([0.5, 0.5, 0.5], [0.4, 0.4, 0.4]), ([0.9, 0.9, None], [1, 1, 1]), ([0.6, 0.7, 0.8], [0.5, 0.6, 0.9])],
}
BEST = {"rise": (0.4, 1.6 / 3), "tie": (0.6, 0.7), "gap": (0.5, 2 / 3)}


def history_of(name: str) -> list[dict[str, Any]]:
    rows = []
    for place, parts in enumerate(ACCURACIES[name]):
        for split, accuracy in zip(("valid", "test"), parts, strict=True):
            known = None if None in accuracy else float(np.min(accuracy))
            rows.append({
                "step": 10 * (place + 1), "epoch": place + 1.0, "split": split, "wga": known,
                "avg": None if known is None else float(np.mean(accuracy)), "accuracy": accuracy,
                "loss": [1.0 + place] * 3, "count": [10, 20, 0 if None in accuracy else 5], "rows": 35,
            })  # fmt: skip
        rows.append({"step": 10 * (place + 1), "kind": "sampling_variance", "variance": 1.0})
    return rows


def a_store(root: Path) -> Store:
    for seed, (label, name) in enumerate((("asc", "rise"), ("asc", "tie"), ("sgd", "gap"))):
        own: dict[str, Any] = {"plan": None} if label == "sgd" else {}
        write_run(root, name, algorithm=label, seed=seed, history=history_of(name), wga=0.01, avg=0.02, **own)
    write_run(root, "bare", algorithm="azb", history=[])
    write_unfinished(root, "begun", "running")
    (root / "runs" / "begun.running" / "history.jsonl").write_bytes((root / "runs/rise/history.jsonl").read_bytes())
    return analysis.load(root)


def test_scores_are_those_of_the_best_validation_wga_and_of_equals_the_latest(results_root: Path) -> None:
    store = a_store(results_root)
    assert store.at_epoch(LAST) is store
    best = store.at_epoch(BEST_VALID_WGA)
    runs, groups = best.runs.set_index("run_id"), best.groups.set_index(["run_id", "split", "group"])
    for name, (wga, avg) in BEST.items():
        assert runs.loc[name, ["test_wga", "test_avg"]].astype(float).tolist() == pytest.approx([wga, avg])
    assert runs.loc[list(BEST), "valid_wga"].tolist() == [0.5, 0.6, 0.6]
    assert groups.loc[("tie", "test"), "accuracy"].tolist() == [0.6, 0.7, 0.8]
    assert groups.loc[("tie", "valid"), "accuracy"].tolist() == [0.9, 0.6, 0.9]
    assert groups.loc[("gap", "test"), "loss"].tolist() == [3.0] * 3
    assert groups.loc[("rise", "test"), "count"].tolist() == [10, 20, 5]
    # What the store holds of the last iterate is left as it was, and so are epsilons and runs that are not done.
    assert (store.runs.set_index("run_id").loc[list(BEST), "test_wga"] == 0.01).all()
    assert runs.loc["begun", ["test_wga", "valid_wga"]].isna().all()
    assert runs["epsilon_max"].equals(store.runs.set_index("run_id")["epsilon_max"])


@pytest.mark.parametrize(("rule", "metric"), [(BEST_VALID_WGA, "wga"), (BEST_VALID_ROBUST, "robust_avg")])
def test_a_rule_sees_the_validation_rows_of_its_metric_alone(rule: str, metric: str) -> None:
    """40 histories of up to 12 evaluations, seed 0, beside a naive search; twins see test rows, or another metric."""
    chance = np.random.default_rng(0)
    rows, chosen = [], {}
    for run in range(40):
        best = (-1.0, 0)
        for step in range(1, int(chance.integers(2, 13))):
            for split in ("valid", "train", "test"):
                scores = {name: float(chance.integers(6)) / 5 for name in ("wga", "robust_avg", "avg")}  # with ties
                rows.append({"run_id": f"run {run}", "kind": "evaluation", "step": step, "split": split, **scores})
                if split == "valid" and scores[metric] >= best[0]:
                    best = scores[metric], step
        chosen[f"run {run}"] = best[1]
    history = pd.DataFrame(rows)
    assert best_steps(history, rule).to_dict() == chosen
    blind = history.assign(avg=chance.random(len(history)))
    elsewhere = blind["split"] != "valid"
    blind.loc[elsewhere, ["wga", "robust_avg"]] = chance.random((int(elsewhere.sum()), 2))
    assert best_steps(blind, rule).to_dict() == chosen
    exchanged = history.assign(split=history["split"].replace({"test": "valid", "valid": "test"}))
    assert best_steps(exchanged, rule).to_dict() != chosen
    (other,) = {BEST_VALID_WGA, BEST_VALID_ROBUST} - {rule}
    assert best_steps(history, other).to_dict() != chosen


def test_runs_without_attacks_have_no_evaluation_to_choose_under_attack(results_root: Path) -> None:
    """Beside one that has: its scores are those of the step with the highest accuracy under attack."""
    store = a_store(results_root)
    assert best_steps(store.history, BEST_VALID_ROBUST).empty
    attacked = [{**row, "robust_avg": 0.5 - row["avg"] / 10} for row in history_of("rise") if "avg" in row]
    write_run(results_root, "attacked", algorithm="pgd_at", history=attacked, plan=None)
    best = analysis.load(results_root).at_epoch(BEST_VALID_ROBUST).runs.set_index("run_id")
    assert best.loc["attacked", ["test_wga", "valid_wga"]].astype(float).tolist() == [0.2, 0.3]  # at step 10
    assert best.loc["rise", ["test_wga", "valid_wga"]].isna().all()


def test_a_run_that_logged_no_evaluation_has_no_score(results_root: Path) -> None:
    best = a_store(results_root).at_epoch(BEST_VALID_WGA)
    assert best.runs.set_index("run_id").loc["bare", ["test_wga", "valid_avg"]].isna().all()
    assert best.groups.set_index("run_id").loc["bare", "accuracy"].isna().all()


def test_rules_that_are_none_or_come_too_late_are_refused(results_root: Path) -> None:
    store = a_store(results_root)
    with pytest.raises(ValueError, match="unknown epoch 'best_wga': did you mean best_valid_wga"):
        store.at_epoch("best_wga")
    with pytest.raises(ValueError, match="those of epoch 'best_valid_wga': load it again for last"):
        store.at_epoch(BEST_VALID_WGA).at_epoch(LAST)


@pytest.mark.parametrize("kind", ["accuracy_table", "selection_table", "budget_figure"])
def test_tables_take_the_rule_and_say_what_it_costs(results_root: Path, kind: str) -> None:
    """Hand-computed: ASC's test WGA is the mean of 40 and 60 instead of 1; open runs alone need no warning."""
    store = a_store(results_root)
    private = [entry("rise", seed=0, epsilon=1.0), entry("tie", seed=1, epsilon=1.0)]
    open_run = [entry("gap", label="sgd", seed=2)]  # no figure of budgets has a place for it alone
    for runs, warned in [(private, True), *([] if kind == "budget_figure" else [(open_run, False)])]:
        asked = manifest("asc/table1", runs, kind=kind)
        before = draw(Manifest.of(asked), store).text
        asked["draw"]["epoch"] = BEST_VALID_WGA
        after = draw(Manifest.of(asked), store).text
        assert WORDS in after and WORDS not in before and "last iterate" in before
        assert (CHOSEN in after) is warned and CHOSEN not in before
        assert ("50.0 ± 14.1" if warned else "50.0") in after
    with pytest.raises(ValueError, match="unknown epoch 'best'"):
        draw(Manifest.of(manifest("asc/table1", private, kind=kind, epoch="best")), store)


def test_comparisons_take_the_rule(results_root: Path) -> None:
    for label, name in (("asc", "rise"), ("azb", "tie")):
        summary = {"wga": 0.01, "history": history_of(name)}
        write_configured(results_root, name, algorithm=label, seed=0, summary=summary)
    plain = compare_text(results_root, "asc", "azb")
    best = compare_text(results_root, "asc", "azb", ["epoch=best_valid_wga"])
    assert "| WGA        |  1.0 |  1.0 |" in plain and "Accuracy in percent, last iterate, mean" in plain
    assert "| WGA        | 40.0 | 60.0 |" in best and WORDS in " ".join(best.split()) and CHOSEN in best
    assert "| 8          | 50.0 | 80.0 |" in best
    with pytest.raises(ValueError, match="unknown epoch 'first'"):
        compare_text(results_root, "asc", "azb", ["epoch=first"])
