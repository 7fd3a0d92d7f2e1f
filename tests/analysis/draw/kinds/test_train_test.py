"""Train beside test from histories written by hand; gaps, bounds and early stopping worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.train_test import train_test_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

GROUPS = ["men", "women"]
# By evaluation: validation WGA; training and test accuracies of both groups; calibration errors; WGA under noise.
SGD: list[tuple[Any, ...]] = [
    (0.6, [0.7, 0.8], [0.6, 0.8], (0.01, 0.02), (0.6, 0.5)),
    (0.4, [1.0, 1.0], [0.4, 0.9], (0.00, 0.10), (0.9, 0.4)),
]
PRIVATE: list[tuple[Any, ...]] = [(0.5, [0.5, 0.6], [0.45, 0.63], (0.05, 0.04), (0.4, 0.4))] * 2


def history(evaluations: list[tuple[Any, ...]], running: float | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for place, (valid, train, test, errors, noisy) in enumerate(evaluations):
        step = 10 * (place + 1)
        rows.append({"step": step, "epoch": place + 1.0, "split": "valid", "wga": valid, "avg": valid})
        line: dict[str, Any] = {"step": step, "kind": "gaps"}
        for part, own, error, corrupted in zip(("train", "test"), (train, test), errors, noisy, strict=True):
            line |= {
                f"{part}_wga": min(own), f"{part}_accuracy": own, f"{part}_calibration_error": error,
                f"{part}_corrupted_wga": corrupted,
            }  # fmt: skip
        rows.append(line)
        if running is not None:
            rows.append({"step": step, "kind": "running", "running_wga": running, "running_accuracy": [running, 1.0]})
    return rows


def run_of(root: Path, label: str, seed: int, evaluations: list[tuple[Any, ...]], **plan: Any) -> dict[str, Any]:
    run = run_id("wysiwyg", label, seed, *plan.items())
    own: dict[str, Any] = {"plan": None}
    if plan:
        epsilon = plan["epsilon"]
        claim = {"rule": "gdp_clt", "epsilon": plan.get("claim"), "delta": 0.0, "meaning": "an approximation"}
        own["plan"] = {
            "target_epsilon": None, "epsilon_per_group": [epsilon / 2, epsilon], "delta": 0.0,
            "neighbouring": plan.get("neighbouring", "add_remove"), "claim": claim,
        }  # fmt: skip
    lines = history(evaluations, 0.95 if label == "sgd" else None)
    write_run(root, run, algorithm=label, seed=seed, group_names=GROUPS, history=lines, **own)
    return entry(run, label=label, seed=seed, **({"noise_multiplier": plan["epsilon"]} if plan else {}))


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    methods = {"sgd": "SGD", "dpsgd": "DP-SGD"}
    return train_test_figure(
        Manifest.of(manifest("wysiwyg/fig1", runs, kind="train_test_figure", methods=methods, **options)), load(root)
    )


def body(drawing: Drawing) -> dict[str, list[str]]:
    return {row[0].text: [cell.text for cell in row[1:]] for row in drawing.tables[0].rows}


def test_both_parts_stand_side_by_side_and_what_is_reported_beside_them(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, "sgd", 0, SGD), run_of(tmp_path, "dpsgd", 0, PRIVATE, epsilon=4.13, claim=1.67)]
    drawing = drawn(tmp_path, runs, early=True)
    assert drawing.tables[0].header == ["Method", "ε claimed", "ε proven", "Training", "Training, as reported", "Test"]
    assert body(drawing) == {
        "SGD": ["–", "–", "100.0", "95.0", "40.0"],
        "SGD, stopped early": ["–", "–", "70.0", "95.0", "60.0"],
        "DP-SGD": ["1.67 (gdp_clt)", "4.13", "50.0", "– (n=0/1)", "45.0"],
    }
    assert "What is claimed is no bound (gdp_clt: an approximation), what is proven is one" in drawing.text


@pytest.mark.parametrize(
    ("neighbouring", "bound"), [("add_remove", 2 * 100 / 3), ("replace_one", 100 / 3)], ids=["add", "replace"]
)
def test_gaps_and_bounds_by_hand(tmp_path: Path, neighbouring: str, bound: float) -> None:
    """At ε = ln 2 and δ = 0 the bound is 1/3, and twice that where an exchange is two steps."""
    private = run_of(tmp_path, "dpsgd", 0, PRIVATE, epsilon=math.log(2), neighbouring=neighbouring)
    runs = [run_of(tmp_path, "sgd", 0, SGD), private]
    drawing = drawn(tmp_path, runs, gaps=["wga", "group", "calibration", "corruption"])
    assert body(drawing)["SGD"][-5:] == ["60.0", "60.0", "10.0", "50.0", "–"]
    assert body(drawing)["DP-SGD"][-5:] == ["5.0", "5.0", "-1.0", "0.0", f"{bound:.1f}"]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    points = pd.read_csv(tmp_path / "figure.csv").set_index(["method", "quantity", "run_method"])["mean"]
    assert points["Bound by the proven ε", "gap/group", "DP-SGD"] == pytest.approx(bound)
    assert points["Bound by the proven ε", "gap/calibration", "DP-SGD"] == pytest.approx(min(100, 2 * bound))
    assert ("Bound by the proven ε", "gap/wga", "SGD") not in points


def test_the_group_is_that_of_the_largest_mean_gap_not_of_the_largest_of_any_seed(tmp_path: Path) -> None:
    """Gaps of men .3 and −.3, of women .2 and .2: women's."""
    first = [(0.5, [0.8, 0.7], [0.5, 0.5], (0, 0), (0, 0))]
    second = [(0.5, [0.2, 0.7], [0.5, 0.5], (0, 0), (0, 0))]
    runs = [run_of(tmp_path, "sgd", seed, own) for seed, own in enumerate((first, second))]
    assert body(drawn(tmp_path, runs, gaps=["group"]))["SGD"][-2:] == ["20.0 ± 0.0", "–"]


def test_against_epsilon_a_point_is_a_budget_and_methods_without_privacy_are_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.train_test.drawing", lambda *parts, **more: sheets.append(parts[-1]))
    runs = [run_of(tmp_path, "sgd", 0, SGD)]
    for epsilon, claim in ((4.13, 1.67), (0.6, 0.26)):
        runs += [run_of(tmp_path, "dpsgd", seed, PRIVATE, epsilon=epsilon, claim=claim) for seed in range(2)]
    drawn(tmp_path, runs, against="epsilon", gaps=["wga"])
    claimed, proven, gap = sheets[0].panels
    assert sorted(claimed.data["x"].unique()) == [0.26, 1.67] and sorted(proven.data["x"].unique()) == [0.6, 4.13]
    assert claimed.xlabel == "ε claimed by gdp_clt: no bound" and proven.xlabel == "ε proven"
    assert proven.limits is not None
    assert {(row.method, row.y) for row in proven.limits.itertuples()} == {
        ("Training", 100.0), ("Training, as reported", 95.0), ("Test", 40.0),
    }  # fmt: skip
    assert set(gap.data["method"]) == {"Measured gap", "Bound by the proven ε"}
    assert all(panel.log_x for panel in sheets[0].panels)


def test_each_private_method_has_its_row_and_what_is_far_out_is_in_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[Any] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.train_test.drawing", lambda *given, **more: parts.append(given))
    runs = [run_of(tmp_path, "dpsgd", 0, PRIVATE, epsilon=4.13), run_of(tmp_path, "dpsgd", 0, PRIVATE, epsilon=5e4)]
    runs += [run_of(tmp_path, "dp_is_sgd", 0, PRIVATE, epsilon=4.19)]
    drawn(tmp_path, runs, against="epsilon", axes=["proven"], gaps=["group"])
    table, sheet = parts[0][3:5]
    assert [panel.title for panel in sheet.panels] == [
        "DP-SGD", "DP-SGD, gap: Accuracy of a group", "dp_is_sgd", "Dp_is_sgd, gap: Accuracy of a group",
    ]  # fmt: skip
    assert sheet.across == 2 and sheet.panels[0].data["x"].unique().tolist() == [4.13]
    assert [row[2].text for row in table.rows] == ["4.13", "5e+04", "4.19"]


def test_the_papers_training_accuracy_is_held_against_the_running_one(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, "sgd", seed, SGD) for seed in range(2)]
    for run in runs:
        run["dataset"] = "celeba_hair"
    beside = drawn(tmp_path, runs).tables[1]
    assert [[cell.text for cell in row[:4]] for row in beside.rows] == [
        ["SGD", "CelebA (hair) training WGA", "99.4", "95.0 ± 0.0 (n=2)"],
        ["SGD", "CelebA (hair) test WGA", "41.7", "40.0 ± 0.0 (n=2)"],
    ]


def test_what_is_not_trained_yet_leaves_gaps(tmp_path: Path) -> None:
    missing = [entry(f"lost {noise}", label="dpsgd", noise_multiplier=noise) for noise in (1, 10)]
    runs = [run_of(tmp_path, "dpsgd", 0, PRIVATE, epsilon=4.13, claim=1.67), *missing]
    drawing = drawn(tmp_path, runs, against="epsilon", gaps=["wga"])
    assert [[cell.text for cell in row][2:4] for row in drawing.tables[0].rows] == [
        ["4.13", "50.0"], ["–", "– (n=0/1)"], ["–", "– (n=0/1)"],
    ]  # fmt: skip
    assert "UNFINISHED: 1 of 3 runs" in drawing.text
    with pytest.raises(ValueError, match="2 runs for DP-SGD"):
        drawn(tmp_path, [*runs, missing[0] | {"run_id": "again"}], against="epsilon")


def test_runs_that_did_not_measure_draw_nothing(tmp_path: Path) -> None:
    run = run_id("bare")
    write_run(tmp_path, run, algorithm="sgd", plan=None, history=[])
    assert "Nothing to draw yet" in drawn(tmp_path, [entry(run, label="sgd")]).text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"against": "noise"}, "draw.against is 'noise'"),
        ({"gaps": ["loss"]}, "draw.gaps has 'loss', which is none of wga, group, calibration, corruption"),
        ({"axes": ["target"]}, "draw.axes has 'target', which is none of claimed, proven"),
    ],
)
def test_options_that_are_none_are_refused(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        drawn(tmp_path, [run_of(tmp_path, "sgd", 0, SGD)], **options)
