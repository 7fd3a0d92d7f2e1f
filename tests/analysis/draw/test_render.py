import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds import accuracy
from rawls.analysis.draw.render import COMPUTED, KINDS, render
from rawls.analysis.read.load import MADE_BY
from tests.analysis.stores import entry, manifest, write_json, write_manifest, write_run, write_unfinished

TRAINED = [kind for kind in KINDS if kind not in COMPUTED]
OF_PROBLEMS = ("rates_figure", "crossover_map")  # of runs on synthetic problems, which a paper's table has none of
OF_NO_PAPER = ("ranking", "arena")  # nothing is printed that they could be judged by


def a_curve(root: Path) -> Path:
    history = [{"step": 1, "epoch": 1.0, "split": "valid", "wga": 0.5}]
    write_run(root, "a", history=history)
    return write_manifest(root, manifest("asc/fig2", [entry("a")], kind="training_curve"))


def test_files_lie_beside_the_manifest(results_root: Path) -> None:
    path = a_curve(results_root)
    rendered = render(path)
    assert {file.name for file in rendered.files} == {"figure.png", "figure.pdf", "figure.csv", "runs.csv"}
    assert {file.name for file in path.parent.iterdir()} == {file.name for file in rendered.files} | {path.name}
    assert rendered.verdict == "complete"
    assert rendered.text.startswith("Title of asc/fig2")


def test_what_an_earlier_drawing_left_is_removed_and_other_files_are_not(results_root: Path) -> None:
    path = a_curve(results_root)
    for name in ("comparison.csv", "table.md", "notes.txt"):
        (path.parent / name).write_text("old")
    render(path)
    assert not (path.parent / "comparison.csv").exists()
    assert not (path.parent / "table.md").exists()
    assert (path.parent / "notes.txt").read_text() == "old"


def test_a_drawing_that_fails_leaves_the_old_files_as_they_were(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    def draw(*_: Any) -> Drawing:
        return Drawing(text="", verdict="", files={"table.md": lambda path: path.touch(), "table.csv": broken})

    monkeypatch.setitem(KINDS, "accuracy_table", draw)
    path = write_manifest(results_root, manifest("asc/table1", [entry("a")], kind="accuracy_table"))
    (path.parent / "table.md").write_text("old")
    with pytest.raises(ValueError, match="disk full"):
        render(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["manifest.json", "table.md"]
    assert (path.parent / "table.md").read_text() == "old"


def test_runs_csv_says_which_code_made_each_number(results_root: Path) -> None:
    write_run(results_root, "a", wga=0.25)
    made = {"git_sha": "abc", "git_dirty": False, "versions": {"torch": "2"}, "device": "cpu", "finished": "then"}
    write_json(results_root / "runs" / "a" / "environment.json", made)
    write_unfinished(results_root, "b", "failed")
    path = write_manifest(results_root, manifest("asc/table1", [entry("a"), entry("b", seed=1)], kind="accuracy_table"))
    render(path)
    first, second = pd.read_csv(path.parent / "runs.csv").to_dict("records")
    assert (first["run_id"], first["status"], first["test_wga"], first["git_sha"]) == ("a", "done", 0.25, "abc")
    assert json.loads(first["versions"]) == made["versions"]
    assert all(first[name] == made[name] for name in set(MADE_BY) - {"versions"})
    assert json.loads(first["coordinates"]) == {"algorithm": "asc", "dataset": "unbalanced_mnist"}
    assert (second["status"], second["error"]) == ("failed", "ValueError: no noise meets it")


def test_an_unknown_kind_names_the_nearest(results_root: Path) -> None:
    path = write_manifest(results_root, manifest("asc/table1", [], kind="acuracy_tabel"))
    with pytest.raises(ValueError, match="'acuracy_tabel', the nearest is 'accuracy_table'"):
        render(path)


@pytest.mark.parametrize("kind", [kind for kind in TRAINED if kind not in OF_PROBLEMS])
def test_every_kind_renders_a_store_with_nothing_in_it(results_root: Path, kind: str) -> None:
    runs = [entry("a", batch_size=256, search="opacus", accountant="rdp", epsilon=1.0)]
    rendered = render(write_manifest(results_root, manifest("asc/table1", runs, kind=kind)))
    assert rendered.verdict.startswith("missing (0 of 1 runs)")


@pytest.mark.parametrize("kind", TRAINED)
def test_every_kind_says_that_no_run_is_asked_for(results_root: Path, kind: str) -> None:
    rendered = render(write_manifest(results_root, manifest("asc/table1", [], kind=kind)))
    assert rendered.text.endswith("`rawls reproduce asc/table1` asks for no run; give every key a value.")
    assert rendered.verdict == "missing (no run is asked for)"
    assert [file.name for file in rendered.files] == ["runs.csv"]


@pytest.mark.parametrize("kind", [kind for kind in TRAINED if kind not in OF_PROBLEMS])
def test_every_kind_refuses_to_pool_two_settings(results_root: Path, kind: str) -> None:
    standard: dict[str, Any] = {"batch_size": 256, "search": "opacus", "accountant": "rdp", "epsilon": 1.0}
    of_each = ("selection_table", "owner_pareto", *OF_NO_PAPER)  # every configuration has a place of its own
    lr, seeds = (0.1, 0.1) if kind in of_each else (0.1, 0.01), (0, 1)
    runs = [
        entry(f"{rate}{seed}{place}", seed=seed, lr=rate, **standard) for place, rate in enumerate(lr) for seed in seeds
    ]
    path = write_manifest(results_root, manifest("asc/table1", runs, kind=kind))
    with pytest.raises(ValueError, match="asc/table1: [24] runs for ASC on Unbalanced MNIST") as caught:
        render(path)
    named = dict.fromkeys(of_each, "differ in nothing")
    named["calibration_table"] = "differ in seed (0, 1), lr (0.1, 0.01)"
    assert named.get(kind, "differ in lr (0.1, 0.01)") in str(caught.value)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kind", [kind for kind in TRAINED if kind not in (*OF_PROBLEMS, *OF_NO_PAPER)])
def test_every_kind_stamps_and_does_not_judge_what_the_command_line_changed(results_root: Path, kind: str) -> None:
    history = [
        {"step": 1, "epoch": 1.0, "split": "valid", "wga": 0.5},
        {"step": 1, "kind": "sampling_variance", "variance": 0.5},
        {"step": 1, "epoch": 1.0, "kind": "group_gradients", "gradient_variance": [1.0, 2.0, 3.0]},
    ]
    write_run(results_root, "a", history=history)
    write_json(results_root / "runs" / "a" / "environment.json", {"fleet": 1})
    runs = [entry("a", batch_size=256, search="opacus", accountant="rdp", epsilon=1.0)]
    target = {"calibration_table": "asc/calibration"}.get(kind, "asc/table1")
    content = manifest(target, runs, kind=kind) | {"changed": ["schedule.max_steps=5", "privacy=eps8"]}
    path = write_manifest(results_root, content)
    rendered = render(path)
    assert "changed: schedule.max_steps=5, privacy=eps8" in rendered.text.partition("\n")[0]
    assert rendered.verdict == "not comparable (changed: schedule.max_steps=5, privacy=eps8)"
    for name in {"table.csv", "comparison.csv", "figure.csv"} & {file.name for file in rendered.files}:
        assert set(pd.read_csv(path.parent / name)["data"]) == {"changed: schedule.max_steps=5, privacy=eps8"}


def test_the_kinds_are_those_of_the_experiments() -> None:
    assert KINDS["accuracy_table"] is accuracy.draw
    assert set(KINDS) == {
        "accuracy_table",
        "budget_figure",
        "training_curve",
        "sampling_variance",
        "calibration_table",
        "claims_table",
        "group_table",
        "selection_table",
        *("ranking", "arena", "rates_figure", "crossover_map", "argument_stability"),
        "group_figure",
        "group_curve",
        "time_figure",
        "normalisation_error",
        "robust_figure",
        "stability_bounds",
        "train_test_figure",
        "owner_curve",
        "owner_change",
        "owner_sweep",
        "owner_pareto",
        "owner_plans",
        "membership_figure",
    }
