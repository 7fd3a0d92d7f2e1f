"""Every kind of figure beside a committed picture: pixels may differ as versions of fonts do, not as results do."""

from pathlib import Path

import pytest
from matplotlib.testing.compare import compare_images

from rawls.analysis.draw.render import KINDS, render
from tests.analysis.draw.golden_figures import figures
from tests.analysis.stores import GOLDEN

TOLERANCE = 3.0  # root mean square of what 8 bits of a channel differ by; ASC half a point higher gives 10 or more
NAMES = ["training_curve", "training_curve_subplots", "sampling_variance", "budget_figure", "budget_figure_gaps"]
NAMES += ["group_figure", "group_figure_probed", "group_curve", "time_figure", "normalisation_error"]
NAMES += ["stability_bounds", "budget_figure_claimed", "train_test_figure", "train_test_figure_by_epsilon"]
NAMES += ["robust_figure"]
NAMES += ["owner_curve", "owner_change", "owner_sweep", "owner_pareto", "owner_plans", "membership_figure"]
# Pictures of these lie among the records (analysis/reproduced/arena and zb), and their tests hold what they draw.
RECORDED = {"arena", "ranking", "rates_figure", "crossover_map", "argument_stability"}
VARIANTS = ("_subplots", "_gaps", "_probed", "_claimed", "_by_epsilon")


def drawn(root: Path, name: str, **changes: float) -> Path:
    files = render(figures(root, **changes)[name]).files
    return next(file for file in files if file.name == "figure.png")


def reference(name: str) -> Path:
    return GOLDEN / "figures" / f"{name}.png"


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_looks_like_its_reference(name: str, results_root: Path) -> None:
    assert compare_images(str(reference(name)), str(drawn(results_root, name)), TOLERANCE) is None


@pytest.mark.parametrize("name", NAMES)
def test_another_result_looks_different(name: str, results_root: Path) -> None:
    other = drawn(results_root, name, shift=0.5)
    told = compare_images(str(reference(name)), str(other), TOLERANCE)
    assert told is not None and "RMS Value" in told


def test_every_kind_that_draws_a_figure_has_a_reference(results_root: Path) -> None:
    assert sorted(figures(results_root)) == sorted(NAMES)
    drawing = {kind for kind in KINDS if not kind.endswith("_table")} - RECORDED
    assert {name for name in NAMES if not name.endswith(VARIANTS)} == drawing
