from pathlib import Path
from typing import Any

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.arena import draw
from rawls.analysis.draw.render import render
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from rawls.runners.store.checksums import sealed
from tests.analysis.draw.kinds.test_ranking import OPEN, run
from tests.analysis.stores import manifest, write_json, write_manifest


def contest(root: Path) -> list[dict[str, Any]]:
    """ASC before DP-SGD at ε = 1 and behind it at 8, on two data sets; SGD without privacy, once for both."""
    runs = []
    for dataset in ("digits", "dutch"):
        for epsilon, asc in ((1.0, 0.6), (8.0, 0.2)):
            runs += [
                run(root, "asc", 0.5, asc, 0, dataset=dataset, epsilon=epsilon),
                run(root, "dpsgd", 0.4, 0.4, 0, dataset=dataset, epsilon=epsilon),
            ]
        runs.append(run(root, "sgd", 0.9, 0.8, 0, dataset=dataset, **OPEN))
    return runs


def drawn(root: Path, runs: list[dict[str, Any]]) -> Drawing:
    return draw(Manifest.of(manifest("arena", runs, kind="arena")), load(root))


def test_a_table_for_each_budget_with_the_open_methods_in_each(tmp_path: Path) -> None:
    found = drawn(tmp_path, contest(tmp_path))
    rows = [[[cell.text for cell in row] for row in table.rows] for table in found.tables]
    assert rows[0] == [
        ["ASC", "1.0", "–", "60.0", "60.0"],
        ["DPSGD", "2.0", "0 : 2", "40.0", "40.0"],
        ["sgd", "–", "–", "80.0", "80.0"],
    ]
    assert [row[0] for row in rows[1]] == ["DPSGD", "ASC", "sgd"]
    assert found.tables[0].header == ["Method", "Rank", "Against the first", "Digits", "Dutch"]
    assert found.summary.splitlines()[0].startswith("Digits, ε = 1: take ASC: of 2 methods")


def test_claims_stand_beside_what_an_attack_showed(tmp_path: Path) -> None:
    finding = {
        "attack": "published sums", "setting": "full batch", "record": "canary", "bound": "gaussian", "claim": 6.5,
        "rule": "gdp_clt", "proven": 8.0, "lower_bound": 5.47, "runs": 100, "trials": 100,
    }  # fmt: skip
    record = {
        "method": "asc", "dataset": "digits", "provenance": "real", "model": "linear", "findings": [finding],
        "twins": [], "verdict": "holds", "confidence": 0.99, "seconds": 1.0,
    }  # fmt: skip
    write_json(tmp_path / "audits" / "asc.json", sealed(record))
    runs = contest(tmp_path)
    last = drawn(tmp_path, runs).tables[-1]
    assert last.header[2:4] == ["Claimed, ε = 1", "Claimed, ε = 8"]
    asc, dpsgd = ([cell.text for cell in row] for row in last.rows)
    assert asc[4:] == ["published sums, full batch, on Digits", "6.5", "8", "5.47"]
    assert dpsgd[0] == "DPSGD" and dpsgd[4:] == ["–"] * 4, "nobody attacked it"


def test_it_is_written_whole(tmp_path: Path) -> None:
    files = render(write_manifest(tmp_path, manifest("arena", contest(tmp_path), kind="arena"))).files
    assert {file.name for file in files} == {
        "figure.png",
        "figure.pdf",
        "table.md",
        "table.tex",
        "table.csv",
        "runs.csv",
    }
    assert all(file.stat().st_size for file in files)
    assert "ε = 8" in next(file for file in files if file.name == "table.md").read_text("utf-8")


def test_nothing_trained_is_no_table(tmp_path: Path) -> None:
    missing = [{**made, "run_id": "0" * 16} for made in contest(tmp_path)[:1]]
    found = drawn(tmp_path / "empty", missing)
    assert found.tables == () and found.verdict == "missing (0 of 1 runs)"
