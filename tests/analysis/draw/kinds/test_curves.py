import math
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.curves import over_seeds, sampling_variance, training_curve
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run


def evaluations(*accuracies: float) -> list[dict[str, Any]]:
    """A history with one evaluation per epoch of ten steps, and others that must not be drawn."""
    lines = []
    for epoch, wga in enumerate(accuracies):
        at = {"step": 10 * epoch, "epoch": float(epoch)}
        lines += [{**at, "split": "valid", "wga": wga}, {**at, "split": "train", "wga": 1.0}]
        lines += [{"step": 10 * epoch, "kind": "sampling_variance", "variance": 10.0 ** (epoch + 1) * (1 + wga)}]
    return lines


def curve_runs(root: Path, **changes: Any) -> list[dict[str, Any]]:
    """Two seeds of ASC and one of DPSGD, finished; one seed of aZB that is missing."""
    histories = {("asc", 0): (0.1, 0.4), ("asc", 1): (0.3, 0.8), ("dpsgd", 0): (0.0, 0.2)}
    for (label, seed), wga in histories.items():
        write_run(root, run_id(label, seed), algorithm=label, seed=seed, history=evaluations(*wga), **changes)
    return [entry(run_id(*key), label=key[0], seed=key[1], batch_size=128) for key in [*histories, ("azb", 0)]]


def points(drawing: Drawing, folder: Path) -> pd.DataFrame:
    drawing.files["figure.csv"](folder / "figure.csv")
    return pd.read_csv(folder / "figure.csv", keep_default_na=False, na_values={"std": [""]})


def test_over_seeds_equals_a_loop_over_the_seeds() -> None:
    rows = pd.DataFrame({"x": [1, 1, 1, 2, 2], "y": [0.1, 0.4, 0.7, 0.5, math.nan]})
    first, second = over_seeds(rows, by=["x"], value="y", scale=100).to_dict("records")
    mean, std = statistics.fmean([10, 40, 70]), statistics.stdev([10, 40, 70])
    assert (first["mean"], first["std"], first["n"]) == pytest.approx((mean, std, 3))
    assert (first["low"], first["high"]) == pytest.approx((mean - std, mean + std))
    assert (second["n"], second["low"], second["high"]) == (1, 50, 50)
    assert math.isnan(second["std"])


def test_a_band_on_a_log_axis_ends_at_the_smallest_seed_and_stays_positive() -> None:
    rows = pd.DataFrame({"x": [1, 1, 1, 2, 2], "y": [0.01, 0.02, 9.0, 4.0, 5.0]})
    first, second = over_seeds(rows, by=["x"], value="y", positive=True).to_dict("records")
    assert first["mean"] - first["std"] < 0
    assert first["low"] == 0.01
    assert second["low"] == 4.0  # mean - std = 3.79 lies below every seed


def test_training_curve_is_the_validation_metric_over_epochs(tmp_path: Path) -> None:
    runs = curve_runs(tmp_path)
    drawing = training_curve(Manifest.of(manifest("asc/fig2", runs, kind="training_curve")), load(tmp_path))
    found = points(drawing, tmp_path).set_index(["method", "x"])
    assert sorted(found.index) == [("ASC", 0), ("ASC", 1), ("DPSGD", 0), ("DPSGD", 1)]
    assert found.loc[("ASC", 1), "mean"] == pytest.approx(60)
    assert found.loc[("ASC", 1), "std"] == pytest.approx(100 * statistics.stdev([0.4, 0.8]))
    assert found.loc[("ASC", 0), "n"] == 2
    assert "| ASC    |     1 | 60.0 ± 28.3 |" in drawing.text
    assert "| aZB    |     – |   – (n=0/1) |" in drawing.text
    assert drawing.verdict == "partial (3 of 4 runs)"


def test_another_metric_and_split_by_option(tmp_path: Path) -> None:
    runs = curve_runs(tmp_path)
    options = {"kind": "training_curve", "split": "train"}
    drawing = training_curve(Manifest.of(manifest("asc/fig2", runs, **options)), load(tmp_path))
    assert set(points(drawing, tmp_path)["mean"]) == {100}


def test_a_stamped_figure_says_so_in_text_and_csv_and_is_not_comparable(tmp_path: Path) -> None:
    runs = curve_runs(tmp_path, provenance="simulated", scale="laptop")[:-1]
    drawing = training_curve(Manifest.of(manifest("asc/fig2", runs, kind="training_curve")), load(tmp_path))
    assert "[SIMULATED DATA · scale: laptop]" in drawing.text
    assert set(points(drawing, tmp_path)["data"]) == {"SIMULATED DATA · scale: laptop"}
    assert drawing.verdict == "not comparable (simulated data, scale: laptop)"


def test_sampling_variance_is_drawn_per_batch_size_and_compared_with_the_first_method(tmp_path: Path) -> None:
    for label, seed, factor in (("asc", 0, 1.0), ("asc", 1, 3.0), ("azb", 0, 200.0)):
        history = [{"step": step, "kind": "sampling_variance", "variance": factor * step} for step in (10, 1000)]
        write_run(tmp_path, run_id(label, seed), algorithm=label, history=[*history, *evaluations(0.5)[:2]])
    keys = [("asc", 0), ("asc", 1), ("azb", 0), ("azb", 1), ("dpsgd", 0)]
    runs = [entry(run_id(label, seed), label=label, seed=seed, batch_size=128) for label, seed in keys]
    runs.append(entry("missing", label="asc", batch_size=256))
    drawing = sampling_variance(Manifest.of(manifest("asc/fig3", runs, kind="sampling_variance")), load(tmp_path))
    found = points(drawing, tmp_path).set_index(["batch_size", "method", "x"])
    assert found.loc[(128, "ASC", 1000), "mean"] == 2000
    assert found.loc[(128, "ASC", 1000), "low"] == 1000  # the smaller seed, for mean - std lies below it
    # Geometric means over the two steps: 2 x sqrt(10 x 1000) and 200 x sqrt(10 x 1000).
    assert "| ASC    |           200 (n=2) | – (n=0/1) |" in drawing.text
    assert "| DPSGD  |           – (n=0/1) |           |" in drawing.text
    assert "| aZB    | 2e+04 (100×, n=1/2) |           |" in drawing.text
    assert "(×: times that of ASC)" in drawing.text


@pytest.mark.parametrize("kind", [training_curve, sampling_variance])
def test_nothing_finished_draws_nothing_and_says_what_to_run(tmp_path: Path, kind: Any) -> None:
    runs = [entry("a", batch_size=128)]
    drawing = kind(Manifest.of(manifest("asc/fig2", runs, kind="training_curve")), load(tmp_path))
    assert drawing.files == {}
    assert "`rawls reproduce asc/fig2` runs what is missing" in drawing.text
    assert drawing.verdict == "missing (0 of 1 runs)"


def test_two_datasets_in_one_figure_are_an_error(tmp_path: Path) -> None:
    runs = [entry("a"), entry("b", dataset="celeba")]
    with pytest.raises(ValueError, match="Unbalanced MNIST, CelebA: choose one with dataset=NAME"):
        training_curve(Manifest.of(manifest("asc/fig2", runs, kind="training_curve")), load(tmp_path))
