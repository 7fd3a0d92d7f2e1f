"""What attacks left in their folders, drawn: made-up tables of two methods and two groups, and of one run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.draw import attacks
from rawls.analysis.draw.attacks import ALLOWED, DRAWN, GUESSING, draw_attack
from rawls.analysis.draw.figures import draw

PRIVATE, OPEN = "dpsgd on digits, ε=1", "sgd on digits, open"
PARTS = {"all rows": "all", "digit 0": "group", "digit 8": "group"}


def lira(folder: Path, provenance: str = "subset") -> None:
    rows, points = [], []
    for method in (PRIVATE, OPEN):
        private = method == PRIVATE
        for name, part in PARTS.items():
            for attack in (DRAWN, "offline, scaled"):
                at = {"method": method, "part": part, "name": name, "attack": attack}
                few = name == "digit 8"
                rates = {f"{kind}_at_0.001": None if few else 0.002 for kind in ("tpr", "low", "high")}
                rates |= {f"{kind}_at_0.01": 0.015 for kind in ("tpr", "low", "high")}
                bounds = {f"bound_at_{rate}": 2.7183 * rate if private else None for rate in (0.001, 0.01)}
                sizes = {"epsilon": 1.0 if private else None, "runs": 32, "provenance": provenance}
                rows.append(at | {"auroc": 0.6, "auroc_bound": 0.73 if private else None} | rates | bounds | sizes)
                for fpr in np.geomspace(1e-3, 1, 5):
                    tpr = 0.0 if fpr < 2e-3 else min(1.0, 1.5 * fpr)
                    bound = min(1.0, 2.7183 * fpr) if private else None
                    points.append(at | {"fpr": fpr, "tpr": tpr, "low": 0.9 * tpr, "high": 1.1 * tpr, "bound": bound})
    pd.DataFrame(rows).to_csv(folder / "table.csv", index=False)
    pd.DataFrame(points).to_csv(folder / "curves.csv", index=False)


def test_the_drawn_attack_has_all_parts_and_the_others_all_rows(tmp_path: Path) -> None:
    lira(tmp_path)
    text, files = draw_attack(tmp_path)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")][2:]
    found = [tuple(line[:3]) for line in lines]
    expected = [(method, name, DRAWN) for method in (PRIVATE, OPEN) for name in PARTS]
    expected += [(method, "all rows", "offline, scaled") for method in (PRIVATE, OPEN)]
    assert sorted(found) == sorted(expected)
    (minority,) = [line for line in lines if line[:2] == [OPEN, "digit 8"]]
    assert minority[3:] == ["0.600", "–", "–", "–", "1.50 (1.50 – 1.50)", "–", "–"]
    assert {path.name: path.exists() for path in files} == dict.fromkeys(["table.md", "figure.png", "figure.pdf"], True)
    assert (tmp_path / "table.md").read_text("utf-8") == text and "SIMULATED" not in text


def test_each_part_is_a_panel_with_the_curves_the_bound_and_guessing(tmp_path: Path) -> None:
    """The open method has no bound; a rate of 0 is drawn below the axis, which has no place for it."""
    lira(tmp_path)
    table, curves = (pd.read_csv(tmp_path / name) for name in ("table.csv", "curves.csv"))
    figure = draw(attacks.roc_sheet(curves[curves["attack"] == DRAWN], table))
    assert [axis.get_title() for axis in figure.axes] == [*PARTS]
    for axis in figure.axes:
        assert axis.get_xscale() == axis.get_yscale() == "log" and axis.get_ylim()[0] == attacks.LOWEST
        lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axis.get_lines()}
        assert list(lines) == [PRIVATE, OPEN, GUESSING, ALLOWED]
        assert lines[PRIVATE].min() < attacks.LOWEST and (lines[PRIVATE] > 0).all()
        assert lines[ALLOWED] == pytest.approx(np.minimum(1, 2.7183 * np.geomspace(1e-3, 1, 5)))


def test_a_twins_data_are_stamped(tmp_path: Path) -> None:
    lira(tmp_path, provenance="simulated")
    text, _ = draw_attack(tmp_path)
    assert text.partition("\n")[0].endswith("[SIMULATED DATA]")
    table, curves = (pd.read_csv(tmp_path / name) for name in ("table.csv", "curves.csv"))
    assert attacks.roc_sheet(curves, table).stamp == "SIMULATED DATA"


def test_bounds_of_one_run_stand_under_what_is_proven_and_claimed(tmp_path: Path) -> None:
    row = {"method": PRIVATE, "attack": "one run, sums", "record": "group digit 8", "lower_bound": 0.4321}
    row |= {"confidence": 0.95, "proven": 1.0, "claim": None, "runs": 2, "canaries": 100, "guesses": 20, "right": 17}
    pd.DataFrame([row | {"provenance": "real"}]).to_csv(tmp_path / "table.csv", index=False)
    text, files = draw_attack(tmp_path)
    last = [cell.strip() for cell in text.splitlines()[4].split("|")[1:-1]]
    assert last == [PRIVATE, "group digit 8", "one run, sums", "17 of 20 (100)", "0.432", "1.000", "–"]
    assert [path.name for path in files] == ["table.md"] and "confidence 0.95" in text
