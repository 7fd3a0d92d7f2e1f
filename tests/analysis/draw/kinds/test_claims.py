from pathlib import Path
from typing import Any

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.claims import draw
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

METHODS = {"dpsgd": "DP-SGD", "dpsgd_f": "DPSGD-F", "fdpg": "FDPG"}


def planned(root: Path, label: str, proven: float, claimed: float | None, dataset: str = "adult") -> dict[str, Any]:
    """A plan-only run; without a claim its paper prints what is proven."""
    run = run_id(label, dataset)
    claim = {"rule": "counts_not_charged", "epsilon": claimed, "delta": 1e-6, "meaning": "only the gradient is counted"}
    plan: dict[str, Any] = {
        "noise_multiplier": 1.0, "delta": 1e-6, "epsilon": proven, "epsilon_per_group": [0.5, proven],
        "covered_groups": [0, 1], "target_epsilon": None, "claim": None if claimed is None else claim,
    }  # fmt: skip
    write_run(root, run, algorithm=label, dataset=dataset, test=None, valid=None, provenance="plan only", plan=plan)
    return entry(run, label=label, dataset=dataset)


def drawn(root: Path, runs: list[dict[str, Any]]) -> Drawing:
    fields = manifest("fdpg/calibration", runs, kind="claims_table", methods=METHODS)
    return draw(Manifest.of(fields), load(root))


def body(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_claim_and_proof_stand_beside_what_is_printed_in_the_papers_order(tmp_path: Path) -> None:
    runs = [planned(tmp_path, "fdpg", 5.369, 3.414), planned(tmp_path, "dpsgd", 3.408, None)]
    drawing = drawn(tmp_path, runs)
    assert body(drawing.text) == [
        ["Adult", "DP-SGD", "1", "1e-06", "3.4", "3.408", "✓", "3.408", "the proof"],
        ["Adult", "FDPG", "1", "1e-06", "3.4", "3.414", "✓", "5.369", "counts_not_charged"],
    ]
    assert drawing.verdict == "reproduced"
    assert "counts_not_charged: only the gradient is counted." in drawing.text
    assert drawing.text.endswith("2 of 2 claims have the paper's digits")


def test_a_claim_with_other_digits_or_without_a_plan_is_not_reproduced(tmp_path: Path) -> None:
    runs = [planned(tmp_path, "fdpg", 5.369, 3.62), planned(tmp_path, "dpsgd", 3.408, None)]
    assert drawn(tmp_path, runs).verdict == "1 of 2 claims have the paper's digits"
    missing = entry("nowhere", label="dpsgd_f", dataset="adult")
    partial = drawn(tmp_path, [*runs, missing])
    assert partial.verdict.startswith("partial (2 of 3 runs)")
    near = [planned(tmp_path, "fdpg", 5.369, 3.52), runs[1]]
    assert drawn(tmp_path, near).verdict == "reproduced but for one unit in the last digit of 1 of 2 numbers"
    assert body(partial.text)[1] == ["Adult", "DPSGD-F", "–", "–", "3.4", "–", "", "–", "–"]
