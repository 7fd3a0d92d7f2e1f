from pathlib import Path

from rawls.analysis.draw.kinds.argument_stability import argument_stability
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import manifest, write_manifest

PAIRS = """loss,n,mu_w,mu_lambda,moved,lemma_3,sharper,kind
linear,5,1,1,0.1,1,0.2,random
linear,5,1,1,0.3,1,0.2,random
linear,5,1,1,0,1,0.5,random
linear,1,1,9,0.5,1,0.5,constructed
"""


def test_a_pair_beyond_a_bound_is_counted(tmp_path: Path) -> None:
    content = manifest("zb/stability", [], kind="argument_stability", methods={"Lemma 3": "Lemma 3"})
    (write_manifest(tmp_path, content).parent / "stability.csv").write_text(PAIRS)
    drawing = argument_stability(Manifest.of(content), load(tmp_path))
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["random", "linear", "3", "0.300", "1.500", "0", "1", "2.00 to 5.00"],
        ["constructed", "linear", "1", "0.500", "1.000", "0", "0", "2.00 to 2.00"],
    ]


def test_what_was_not_computed_yet_is_missing(tmp_path: Path) -> None:
    drawing = argument_stability(Manifest.of(manifest("zb/stability", [], kind="argument_stability")), load(tmp_path))
    assert drawing.verdict == "missing (not computed yet)"
