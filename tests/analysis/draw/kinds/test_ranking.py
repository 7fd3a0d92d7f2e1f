from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.ranking import OTHER_RELATION, draw, leaders
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, summary, write_json, write_manifest

OPEN = {"plan": None, "private": False, "claim": None}


def run(root: Path, label: str, valid: float, test: float, seed: int, **fields: Any) -> dict[str, Any]:
    """A finished run with one WGA on validation rows and another on test rows, as an entry of a manifest."""
    settings = {key: fields.pop(key) for key in ("lr", "epsilon") if key in fields}
    dataset = fields.pop("dataset", "unbalanced_mnist")
    made = entry(run_id(label, seed, dataset, settings), label=label, seed=seed, dataset=dataset, **settings)
    content = summary(made["run_id"], algorithm=label, dataset=dataset, seed=seed, **fields)
    for split, wga in (("valid", valid), ("test", test)):
        content[split] = content[split] | {"wga": wga, "avg": wga + 0.1}
    write_json(root / "runs" / made["run_id"] / "summary.json", content)
    return made


def three_methods(root: Path) -> list[dict[str, Any]]:
    """ASC with two settings, of which the test part would choose the other; DP-SGD; and SGD without privacy."""
    return [
        made
        for seed in range(3)
        for made in (
            run(root, "asc", 0.5, 0.40 + seed / 50, seed, lr=0.1),
            run(root, "asc", 0.4, 0.90, seed, lr=0.2),
            run(root, "dpsgd", 0.3, 0.20 + seed / 50, seed),
            run(root, "sgd", 0.9, 0.80, seed, **OPEN),
        )
    ]


def read(runs: list[dict[str, Any]], **drawn: Any) -> Manifest:
    return Manifest.of(manifest("choose", runs, kind="ranking", **drawn))


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    return draw(read(runs, **options), load(root))


def rows(drawing: Drawing) -> list[list[str]]:
    (table,) = drawing.tables
    return [[cell.text for cell in row] for row in table.rows]


def test_a_row_is_a_method_with_the_setting_that_validation_chose(tmp_path: Path) -> None:
    found = rows(drawn(tmp_path, three_methods(tmp_path)))
    assert [row[:3] for row in found] == [["1", "ASC", "lr 0.1"], ["2", "DPSGD", ""], ["–", "sgd", ""]]
    assert found[0][3:6] == ["50.0 ± 0.0", "42.0 ± 2.0", "52.0 ± 2.0"]
    assert found[1][7] == "20.0 (20.0 to 20.0) =", "three equal differences have no p to judge by"
    assert found[2][8:10] == ["–", "none"]


def test_the_advice_names_the_first_and_what_it_buys(tmp_path: Path) -> None:
    summary = drawn(tmp_path, three_methods(tmp_path)).summary
    assert summary.startswith(
        "Take ASC (lr 0.1): of 2 methods it has the highest validation WGA. On test its worst group,"
    )
    assert "20.0 points more than DPSGD (95 %: 20.0 to 20.0), and 20.0 points more in the mean." in summary
    assert "The best without privacy is sgd: 80.0 % and 90.0 %." in summary


def test_a_method_that_proves_another_relation_is_marked(tmp_path: Path) -> None:
    runs = three_methods(tmp_path)
    runs += [run(tmp_path, "azb", 0.1, 0.1, seed, plan={"neighbouring": "add_remove"}) for seed in range(3)]
    found = drawn(tmp_path, runs)
    assert [row[1] for row in rows(found)] == ["ASC", "DPSGD", f"aZB{OTHER_RELATION}", "sgd"]
    assert "not the same guarantee" in found.text


def test_what_was_left_out_is_said_once_for_each_reason(tmp_path: Path) -> None:
    left_out = {"A on digits": "no owners", "B on digits": "no owners", "C on digits": "too large"}
    summary = drawn(tmp_path, three_methods(tmp_path), left_out=left_out).summary
    assert (
        "Left out, A on digits, B on digits: no owners." in summary and "Left out, C on digits: too large." in summary
    )


def test_the_leaders_runs_are_those_of_its_chosen_setting(tmp_path: Path) -> None:
    runs = three_methods(tmp_path)
    path = write_manifest(tmp_path, manifest("choose", runs, kind="ranking"))
    wanted = [made["run_id"] for made in runs if made["label"] == "asc" and made["coordinates"].get("lr") == 0.1]
    assert sorted(leaders(path)) == sorted(wanted)


def test_half_a_sweep_is_ranked_as_far_as_it_goes(tmp_path: Path) -> None:
    runs = [*three_methods(tmp_path), entry("missing", label="azb", seed=0)]
    found = drawn(tmp_path, runs)
    assert [row[1] for row in rows(found)] == ["ASC", "DPSGD", "sgd"]
    assert found.verdict == "partial (12 of 13 runs)" and "UNFINISHED" in found.text


@pytest.mark.parametrize("label", ["asc"])
def test_nothing_trained_is_no_table(tmp_path: Path, label: str) -> None:
    found = drawn(tmp_path, [entry("missing", label=label)])
    assert found.tables == () and found.verdict == "missing (0 of 1 runs)"
