from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.budget import budget_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

GROUPS = ["digit 0", "digit 1", "digit 8"]


def drawn(root: Path, **options: Any) -> Drawing:
    """ASC at two budgets with two seeds, one of them missing; aZB-weak at one."""
    runs = []
    for label, target, seed in (("asc", 1.0, 0), ("asc", 1.0, 1), ("asc", 2.12, 0), ("azb_weak", 1.0, 0)):
        run = run_id(label, target, seed)
        epsilons = [1.0, 20.0, 14.3] if label == "azb_weak" else [target] * 3
        changes: dict[str, Any] = {"algorithm": label, "group_names": GROUPS}
        write_run(
            root,
            run,
            plan={"target_epsilon": target, "epsilon_per_group": epsilons},
            wga=0.5 + seed / 10,
            avg=0.9,
            **changes,
        )
        runs.append(entry(run, label=label, seed=seed, epsilon=target))
    runs += [entry("missing", seed=1, epsilon=2.12), entry("also missing", label="azb", epsilon=1.0)]
    return budget_figure(Manifest.of(manifest("asc/fig1", runs, kind="budget_figure", **options)), load(root))


def test_points_are_means_over_seeds_at_each_budget(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, group="digit 8")
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["quantity", "method", "x"])["mean"]
    assert found["test_wga", "ASC", 1.0] == pytest.approx(55)
    assert found["test_avg", "ASC", 2.12] == pytest.approx(90)
    assert found["epsilon_group", "aZB-weak", 1.0] == pytest.approx(14.3)
    assert found["epsilon_group", "ASC", 2.12] == pytest.approx(2.12)


def test_the_table_counts_the_seeds_of_each_budget(tmp_path: Path) -> None:
    rows = [line.split("|")[1:-1] for line in drawn(tmp_path, group="digit 8").text.splitlines() if "| " in line]
    assert [[cell.strip() for cell in row] for row in rows if "-" * 5 not in row[0]] == [
        ["Method", "Target ε", "WGA", "AVG", "Realised ε, digit 8"],
        ["ASC", "1", "55.0 ± 7.1", "90.0 ± 0.0", "1.00"],
        ["ASC", "2.12", "50.0 (n=1/2)", "90.0 (n=1/2)", "2.12"],
        ["aZB", "1", "– (n=0/1)", "– (n=0/1)", "–"],
        ["aZB-weak", "1", "50.0", "90.0", "14.30"],
    ]


def test_without_a_group_the_largest_epsilon_is_shown(tmp_path: Path) -> None:
    text = drawn(tmp_path).text
    assert "Realised ε, largest over groups" in text
    assert "20.00" in text


def test_an_unknown_group_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'8' is no group of these runs: choose one of digit 0, digit 1, digit 8"):
        drawn(tmp_path, group="8")


def of_groups(root: Path, label: str, seed: int, target: float | None, men: float, women: float) -> dict[str, Any]:
    """A run of 30 men and 10 women."""
    run = run_id("fig7", label, target, seed)
    scores = {"accuracy": [men, women], "loss": [0, 0], "count": [30, 10], "wga": men, "avg": women}
    plan = None if target is None else {"target_epsilon": target, "epsilon_per_group": [target, target]}
    write_run(root, run, algorithm=label, seed=seed, group_names=["men", "women"], test=scores, valid=None, plan=plan)
    return entry(run, label=label, seed=seed, epsilon=target)


def gaps(root: Path) -> Drawing:
    """Costs of men 10 and 12, of women 3 and 1: 9 apart in the mean; and at a larger budget none."""
    runs = [of_groups(root, "sgd", seed, None, men, 0.92) for seed, men in enumerate((0.80, 0.82))]
    runs += [of_groups(root, "dpsgd", seed, 1.0, 0.70, women) for seed, women in enumerate((0.89, 0.91))]
    runs += [of_groups(root, "dpsgd", 0, 3.0, 0.80, 0.92)]
    names = {"groups": {"unbalanced_mnist": {"male": "men", "female": "women"}}, "methods": {"sgd": "NON-DP"}}
    content = manifest("fdpg/fig7", runs, kind="budget_figure", metrics=["total", "groups", "pi"], **names)
    return budget_figure(Manifest.of(content), load(root))


def test_accuracies_of_groups_and_the_gap_between_what_privacy_costs_them(tmp_path: Path) -> None:
    drawing = gaps(tmp_path)
    assert drawing.tables[0].header == ["Method", "Target ε", "Total", "Male", "Female", "Privacy cost gap π"]
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["dpsgd", "1", "75.0 ± 0.4", "70.0 ± 0.0", "90.0 ± 1.4", "9.0 ± 2.8"],
        ["dpsgd", "3", "83.0", "80.0", "92.0", "0.0"],
        ["NON-DP", "no privacy", "83.8 ± 1.1", "81.0 ± 1.4", "92.0 ± 0.0", "–"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["quantity", "method", "x"])
    assert found.loc[("pi", "dpsgd", 1.0), "mean"] == pytest.approx(9)
    assert found.loc[("accuracy/Female", "dpsgd", 3.0), "mean"] == pytest.approx(92)


def test_a_method_without_privacy_is_a_dashed_line_where_it_has_the_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.budget.drawing", lambda *parts, **more: sheets.append(parts[-1]))
    gaps(tmp_path)
    total, men, women, pi = sheets[0].panels
    assert men.limits is not None and women.limits is not None and total.limits is not None
    assert men.limits.to_numpy().tolist() == [["NON-DP", "NON-DP", 1.0, 81.0], ["NON-DP", "NON-DP", 3.0, 81.0]]
    assert pi.limits is None
    assert [panel.from_zero for panel in sheets[0].panels] == [False, False, False, True]


def test_an_unknown_metric_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="'gap', which is no metric: choose from wga, avg, epsilon, total, disparity, "
    ):
        drawn(tmp_path, metrics=["gap"])


def claimed(root: Path, label: str, seed: int, noise: float, epsilons: tuple[float, float], men: float) -> Any:
    """A run of 30 men and 10 women at a given noise, what its paper claims for that, and what is proven."""
    run = run_id("fig4", label, noise, seed)
    scores = {"accuracy": [men, 0.2], "loss": [0, 0], "count": [30, 10], "wga": min(men, 0.2), "avg": men}
    claim = {"rule": "gdp_clt", "epsilon": epsilons[0], "delta": 1e-5, "meaning": "an approximation"}
    plan = {"target_epsilon": None, "epsilon_per_group": [0.1, epsilons[1]], "claim": claim, "noise_multiplier": noise}
    write_run(
        root, run, algorithm=label, dataset="celeba_hair", seed=seed, group_names=["men", "women"], test=scores,
        valid=None, plan=plan,
    )  # fmt: skip
    return entry(run, label=label, dataset="celeba_hair", seed=seed, noise_multiplier=noise)


def by_claim(root: Path, **options: Any) -> Drawing:
    runs = [claimed(root, "dpsgd", seed, 0.5, (1.67, 4.13), men) for seed, men in enumerate((0.7, 0.9))]
    runs += [claimed(root, "dpsgd", 0, 1, (0.2592, 0.6), 0.8)]
    scores = {"accuracy": [0.9, 0.7], "loss": [0, 0], "count": [30, 10], "wga": 0.7, "avg": 0.8}
    same: dict[str, Any] = {"dataset": "celeba_hair", "group_names": ["men", "women"], "test": scores, "valid": None}
    write_run(root, "open", algorithm="sgd", plan=None, **same)
    runs.append(entry("open", label="sgd", dataset="celeba_hair"))
    given = {"methods": {"sgd": "SGD", "dpsgd": "DP-SGD"}, "metrics": ["disparity", "total", "wga"]}
    given |= {"axes": ["claimed", "proven"]}
    content = manifest("wysiwyg/fig4_celeba", runs, kind="budget_figure", **(given | options))
    return budget_figure(Manifest.of(content), load(root))


def test_claim_and_proof_stand_side_by_side_and_disparity_is_the_best_less_the_worst(tmp_path: Path) -> None:
    """Men at 70 and 90 beside women at 20: 50 and 70 apart, 57.5 and 72.5 of all right."""
    drawing = by_claim(tmp_path)
    assert drawing.tables[0].header == ["Method", "ε claimed", "ε proven", "Disparity", "Total", "WGA"]
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["DP-SGD", "0.2592", "0.6", "60.0", "65.0", "20.0"],
        ["DP-SGD", "1.67", "4.13", "60.0 ± 14.1", "65.0 ± 10.6", "20.0 ± 0.0"],
        ["SGD", "no privacy", "no privacy", "20.0", "85.0", "70.0"],
    ]
    assert "What is claimed is no bound (gdp_clt: an approximation), what is proven is one" in drawing.text


def test_each_axis_has_its_panels_and_the_papers_curve_only_the_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.budget.drawing", lambda *parts, **more: sheets.append(parts[-1]))
    by_claim(tmp_path)
    (sheet,) = sheets
    assert sheet.across == 3 and [panel.log_x for panel in sheet.panels] == [True] * 6
    assert [panel.xlabel for panel in sheet.panels] == ["ε claimed by gdp_clt: no bound"] * 3 + ["ε proven"] * 3
    first, below = sheet.panels[0], sheet.panels[3]
    assert sorted(first.data["x"]) == [0.2592, 1.67] and sorted(below.data["x"]) == [0.6, 4.13]
    assert first.limits is not None and below.limits is not None
    curve = first.limits[first.limits["label"] == "DP-SGD, printed"]
    assert (19.308, 73.2) in set(zip(curve["x"], curve["y"], strict=True)) and len(curve) == 5
    assert set(below.limits["label"]) == {"SGD"}


def test_points_of_given_noise_are_set_beside_the_printed_ones(tmp_path: Path) -> None:
    beside = by_claim(tmp_path).tables[1]
    found = {(row[0].text, row[1].text): [cell.text for cell in row[2:4]] for row in beside.rows}
    assert found["DP-SGD", "CelebA (hair) 0.5 Disparity"] == ["83.0", "60.0 ± 14.1 (n=2)"]
    assert found["DP-SGD", "CelebA (hair) 1 WGA"] == ["0.0", "20.0 (n=1)"]
    assert len(found) == 6


def test_noises_that_are_not_trained_yet_are_no_doubles(tmp_path: Path) -> None:
    runs = [claimed(tmp_path, "dpsgd", 0, 0.5, (1.67, 4.13), 0.7)]
    runs += [entry(f"lost {noise}", label="dpsgd", dataset="celeba_hair", noise_multiplier=noise) for noise in (1, 2)]
    content = manifest("wysiwyg/fig4_celeba", runs, kind="budget_figure", axes=["claimed", "proven"], metrics=["wga"])
    drawing = budget_figure(Manifest.of(content), load(tmp_path))
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [["DPSGD", "1.67", "4.13", "20.0"]]
    assert "UNFINISHED: 1 of 3 runs" in drawing.text


def test_an_axis_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draw.axes has 'printed', which is none of target, claimed, proven"):
        by_claim(tmp_path, axes=["printed"])
