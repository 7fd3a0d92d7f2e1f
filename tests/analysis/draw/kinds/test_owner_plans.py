from pathlib import Path

from rawls.analysis.draw.kinds.owner_plans import owner_plans
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import manifest, write_manifest

PLANS = """spends,fixed,epsilon,value
SAMPLE,4,0.6,0.0189
SAMPLE,4,8,0.2351
SCALE,0.02,3,3.2886
SCALE,0.05,3,1.5894
"""


def test_printed_numbers_stand_beside_ours_and_with_the_curve_that_has_them(tmp_path: Path) -> None:
    content = manifest("ino/fig10", [], kind="owner_plans", steps=1000, delta=1e-5)
    (write_manifest(tmp_path, content).parent / "plans.csv").write_text(PLANS)
    drawing = owner_plans(Manifest.of(content), load(tmp_path))
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["SAMPLE", "σ = 4", "ε = 8", "rate", "0.19", "0.2351", "differs", "–"],
        ["SAMPLE", "σ = 4", "ε = 0.6", "rate", "0.019", "0.0189", "equal", "–"],
        ["SCALE", "q = 0.05", "ε = 3", "threshold", "3.29", "1.5894", "differs", "q = 0.02"],
    ]
    assert drawing.verdict == "complete" and "figure.png" in drawing.files


def test_what_was_not_computed_yet_is_missing(tmp_path: Path) -> None:
    drawing = owner_plans(Manifest.of(manifest("ino/fig10", [], kind="owner_plans")), load(tmp_path))
    assert drawing.verdict == "missing (not computed yet)"
    assert "`rawls reproduce ino/fig10` computes it" in drawing.text
