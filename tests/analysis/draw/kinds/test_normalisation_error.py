from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.normalisation_error import bound, error, normalisation_error
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import manifest


def drawn(root: Path, **options: Any) -> Drawing:
    return normalisation_error(
        Manifest.of(manifest("fdpg/fig5", [], kind="normalisation_error", **options)), load(root)
    )


@pytest.mark.parametrize("gamma", [0.01, 0.3, 1.0])
def test_the_error_is_how_far_normalising_moves_a_gradient(gamma: float) -> None:
    """Eq. (4) from its first form: |g / (|g| + gamma) - g|, of vectors."""
    generator = np.random.default_rng(0)
    gradients = generator.normal(size=(50, 7)) * generator.uniform(0, 1, (50, 1))
    norms = np.linalg.norm(gradients, axis=1)
    moved = np.linalg.norm(gradients / (norms + gamma)[:, None] - gradients, axis=1)
    assert error(norms, gamma) == pytest.approx(moved)


@pytest.mark.parametrize("gamma", [0.01, 0.25, 0.5])
def test_the_bound_is_the_largest_error_up_to_where_it_is_zero(gamma: float) -> None:
    norms = np.linspace(0, 1 - gamma, 100_001)
    errors = error(norms, gamma)
    assert errors.max() == pytest.approx(bound(gamma), rel=1e-6)
    assert norms[errors.argmax()] == pytest.approx(np.sqrt(gamma) - gamma, abs=1e-4)
    assert errors[-1] == pytest.approx(0, abs=1e-12)
    beyond = error(np.linspace(1 - gamma, 5, 1000), gamma)
    assert (np.diff(beyond) > 0).all()


def test_numbers_by_hand(tmp_path: Path) -> None:
    """At gamma = 1/4 the largest is 1 + 1/4 - 1 at 1/4; F(1/2) = (3/8 - 1/4) / (3/4); F(1) = (1/4) / (5/4)."""
    drawing = drawn(tmp_path, stability=[0.25])
    assert [cell.text for cell in drawing.tables[0].rows[0]] == [
        "γ = 0.25", "0.25", "0.25", "0.75", "0.1857", "0.1667", "0.2", "1.111",
    ]  # fmt: skip
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index("x")["mean"]
    assert found[0.0] == 0
    assert found[0.5] == pytest.approx(1 / 6)


def test_no_run_is_needed_and_nothing_is_stamped(tmp_path: Path) -> None:
    drawing = drawn(tmp_path)
    assert drawing.verdict == "complete"
    assert drawing.text.startswith("Title of fdpg/fig5\n")
    assert {"figure.png", "figure.pdf", "figure.csv"} == set(drawing.files)


@pytest.mark.parametrize("gamma", [0, -1, 1.5])
def test_a_gamma_that_is_none_is_refused(tmp_path: Path, gamma: float) -> None:
    with pytest.raises(ValueError, match=f"draw.stability has {gamma:g}, but γ lies above 0 and is at most 1"):
        drawn(tmp_path, stability=[0.1, gamma])
