from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.accuracy import draw
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, summary, write_json, write_run


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    return draw(Manifest.of(manifest("asc/table1", runs, kind="accuracy_table", **options)), load(root))


def seeds(root: Path, label: str, dataset: str, accuracies: list[float], **changes: Any) -> list[dict[str, Any]]:
    """Finished runs of one method, one per accuracy, and their entries in a manifest."""
    entries = []
    for seed, wga in enumerate(accuracies):
        run = run_id(label, dataset, seed)
        write_run(root, run, algorithm=label, dataset=dataset, seed=seed, wga=wga, avg=wga + 0.1, **changes)
        entries.append(entry(run, label=label, seed=seed, dataset=dataset))
    return entries


def row(text: str, method: str) -> list[str]:
    """The cells of a method's row in the first table of a text."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {method} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def written(drawing: Drawing, name: str, folder: Path) -> str:
    drawing.files[name](folder / name)
    return (folder / name).read_text(encoding="utf-8")


def test_rows_are_the_papers_order_and_cells_percent_over_seeds(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "azb", "celeba", [0.1, 0.3]) + seeds(tmp_path, "asc", "celeba", [0.6, 0.64])
    text = drawn(tmp_path, runs).text
    assert row(text, "ASC") == ["ASC", "**62.0 ± 2.8**", "**72.0 ± 2.8**"]
    assert row(text, "aZB") == ["aZB", "20.0 ± 14.1", "30.0 ± 14.1"]
    assert text.index("| ASC ") < text.index("| aZB ")
    assert "over 2 seeds" in text


def test_missing_cells_are_dashes_with_n_and_pairs_nobody_asked_for_are_blank(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "celeba", [0.6]) + [entry("gone", label="asc", dataset="digits")]
    runs += [entry("lost", label="azb", dataset="celeba"), entry("also lost", label="azb", dataset="celeba", seed=1)]
    drawing = drawn(tmp_path, runs)
    assert row(drawing.text, "ASC")[1:] == ["**60.0**", "**70.0**", "– (n=0/1)", "– (n=0/1)"]
    assert row(drawing.text, "aZB")[1:] == ["– (n=0/2)", "– (n=0/2)", "", ""]
    assert "UNFINISHED: 1 of 4 runs" in drawing.text
    assert drawing.verdict.startswith("partial (1 of 4 runs)")


def test_what_is_not_the_papers_setting_is_stamped_everywhere_and_not_judged(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "unbalanced_mnist", [0.59, 0.6])
    runs += seeds(tmp_path, "asc", "celeba", [0.64, 0.65], provenance="simulated", scale="laptop")
    drawing = drawn(tmp_path, runs)
    stamp = "CelebA: SIMULATED DATA · scale: laptop"
    for name in ("table.md", "table.tex", "comparison.md"):
        assert stamp.replace("·", r"$\cdot$" if name.endswith("tex") else "·") in written(drawing, name, tmp_path)
    assert "CelebA [SIMULATED]" in written(drawing, "table.md", tmp_path)
    written(drawing, "table.csv", tmp_path)
    table = pd.read_csv(tmp_path / "table.csv", keep_default_na=False)
    assert set(table[["dataset", "data"]].itertuples(index=False, name=None)) == {
        ("unbalanced_mnist", ""),
        ("celeba", "SIMULATED DATA · scale: laptop"),
    }
    assert "1 of 2 cells within two pooled standard deviations" in drawing.text
    assert "2 cells not comparable (simulated data, scale: laptop)" in drawing.text
    assert drawing.verdict == "1 of 2 comparable cells reproduced"


def test_weights_that_stand_in_are_stamped_and_not_judged(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "celeba", [0.64, 0.65], provenance="subset+stand-in")
    drawing = drawn(tmp_path, runs)
    assert "SUBSET · STAND-IN" in written(drawing, "table.md", tmp_path)
    assert "CelebA [STAND-IN] [SUBSET]" in written(drawing, "table.md", tmp_path)
    assert drawing.verdict == "not comparable (subset of the data, stand-in for the weights)"


def test_only_a_method_whose_groups_exceed_the_target_is_starred(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "azb_weak", "celeba", [0.4, 0.5], plan={"epsilon_per_group": [1.0, 25.73]})
    runs += seeds(tmp_path, "azb_prop", "celeba", [0.4, 0.5], plan={"epsilon_per_group": [0.99, 1.024]})
    text = drawn(tmp_path, runs).text
    assert row(text, "aZB-weak *")[0] == "aZB-weak *"
    assert row(text, "aZB-prop")[0] == "aZB-prop"
    assert "* weaker privacy for minority groups, largest over groups: aZB-weak: ε = 25.73." in text


def test_a_dataset_the_paper_does_not_have_gets_a_table_and_no_comparison(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, seeds(tmp_path, "asc", "digits", [0.5, 0.6]))
    assert set(drawing.files) == {"table.md", "table.tex", "table.csv"}
    assert drawing.text.endswith("The paper prints no number for these cells.")
    assert drawing.verdict == "no numbers in the paper to compare with"


def test_runs_of_different_code_are_noticed_in_every_caption(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "celeba", [0.6, 0.64])
    for run, sha in zip(runs, ("1234567890", "abcdef0123"), strict=True):
        write_json(tmp_path / "runs" / run["run_id"] / "environment.json", {"git_sha": sha, "git_dirty": False})
    drawing = drawn(tmp_path, runs)
    for name in ("table.md", "table.tex", "comparison.md"):
        assert "MADE BY 2 VERSIONS OF THE CODE (1234567, abcdef0)" in written(drawing, name, tmp_path)
    assert drawing.verdict == "1 of 2 comparable cells reproduced"


def test_two_budgets_are_not_pooled_as_seeds(tmp_path: Path) -> None:
    runs = [entry(f"{epsilon}{seed}", seed=seed, epsilon=epsilon) for epsilon in (1.0, 8.0) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"2 runs for ASC .*seed 0.* differ in epsilon \(1, 8\): choose one"):
        drawn(tmp_path, runs)


def test_a_further_reading_of_a_method_is_a_row_of_its_own(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "celeba", [0.6, 0.7]) + seeds(tmp_path, "ASC, η = 0.2", "celeba", [0.5, 0.6])
    drawing = drawn(tmp_path, runs)
    assert row(drawing.text, "ASC, η = 0.2")[1] == "55.0 ± 7.1"
    assert "ASC, η = 0.2" not in written(drawing, "comparison.md", tmp_path)
    assert r"ASC, $\eta$ = 0.2" in written(drawing, "table.tex", tmp_path)


def test_other_metrics_and_splits(tmp_path: Path) -> None:
    runs = seeds(tmp_path, "asc", "celeba", [0.6], test=None)
    text = drawn(tmp_path, runs, metrics=["wga"], split="valid").text
    assert row(text, "ASC") == ["ASC", "**60.0**"]
    assert "valid split" in text


def tried(root: Path, label: str, decay: float, scores: list[tuple[float, float]], **more: Any) -> list[dict[str, Any]]:
    """Finished runs of one configuration, one per (validation, test) WGA."""
    entries = []
    for seed, (valid, test) in enumerate(scores):
        run = run_id(label, decay, seed, *more.values())
        content = summary(run, algorithm=label, seed=seed, **more)
        for split, wga in (("valid", valid), ("test", test)):
            content[split] = content[split] | {"wga": wga, "avg": wga}
        write_json(root / "runs" / run / "summary.json", content)
        made = entry(run, label=label, seed=seed, dataset=content["dataset"])
        entries.append(made | {"coordinates": {"weight_decay": decay}})
    return entries


def test_of_a_grid_each_method_has_what_validation_chooses_on_each_dataset(tmp_path: Path) -> None:
    runs = tried(tmp_path, "asc", 0.1, [(0.5, 0.9), (0.5, 0.9)]) + tried(tmp_path, "asc", 1, [(0.4, 0.1), (0.7, 0.3)])
    runs += tried(tmp_path, "asc", 0.1, [(0.8, 0.2)], dataset="celeba") + tried(tmp_path, "azb", 0.1, [(0.3, 0.4)])
    text = drawn(tmp_path, runs, metrics=["wga"], choose=True).text
    assert row(text, "ASC") == ["ASC", "20.0 ± 14.1", "**20.0**"]
    assert row(text, "aZB") == ["aZB", "**40.0**", ""]
    assert "of each method's grid: ASC on Unbalanced MNIST: weight_decay 1 (of 2)." in text
    with pytest.raises(ValueError, match="differ in weight_decay"):
        drawn(tmp_path, runs, metrics=["wga"])


@pytest.mark.parametrize("shift", [0.0, 0.3, -0.2])
def test_no_choice_depends_on_the_test_part(tmp_path: Path, shift: float) -> None:
    """Whatever the test scores are, the first configuration is taken: its validation WGA is higher."""
    runs = tried(tmp_path, "asc", 0.1, [(0.6, 0.5 - shift)]) + tried(tmp_path, "asc", 1, [(0.5, 0.5 + shift)])
    assert row(drawn(tmp_path, runs, metrics=["wga"], choose=True).text, "ASC")[1] == f"**{50 - 100 * shift:.1f}**"


def test_of_an_unfinished_grid_the_best_so_far_is_shown_and_called_so(tmp_path: Path) -> None:
    missing = entry("lost", label="asc") | {"coordinates": {"weight_decay": 1}}
    nothing = entry("gone", label="azb") | {"coordinates": {"weight_decay": 1}}
    text = drawn(tmp_path, [*tried(tmp_path, "asc", 0.1, [(0.6, 0.5)]), missing, nothing], choose=True).text
    assert row(text, "ASC")[1] == "**50.0**"
    assert "weight_decay 0.1 (of 2, best so far)" in text and "UNFINISHED: 1 of 3 runs" in text
    assert row(text, "aZB")[1] == "– (n=0/1)"
