from pathlib import Path
from typing import Any

from rawls.analysis.draw.kinds.crossover import NEITHER, crossover_map
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run


def trained(root: Path, label: str, groups: int, excess: dict[float, float]) -> list[Any]:
    entries = []
    for signal, value in excess.items():
        run = run_id(label, groups, signal)
        write_run(root, run, excess_population=value, excess_at_zero=signal / 2)
        place: dict[str, Any] = {"rows": 4096, "groups": groups, "dimension": 16, "signal": signal, "epsilon": 1}
        entries.append(entry(run, label=label, **place))
    return entries


def test_each_place_says_who_leads_and_what_the_rates_predict(tmp_path: Path) -> None:
    """K = 4096, d = 16: the rates cross between 2 and 4,000 groups. Of two signals the harder counts."""
    runs = [
        *trained(tmp_path, "one", 2, {0.5: 0.01, 1: 0.02}),
        *trained(tmp_path, "two", 2, {0.5: 0.2, 1: 0.1}),
        *trained(tmp_path, "one", 2048, {0.5: 0.1, 1: 0.4}),
        *trained(tmp_path, "two", 2048, {0.5: 0.1, 1: 0.2}),
        *trained(tmp_path, "one", 8, {0.5: 0.1, 1: 0.49}),
        *trained(tmp_path, "two", 8, {0.5: 0.1, 1: 0.6}),
        *trained(tmp_path, "one", 32, {0.5: 0.1}),
    ]
    content = manifest("zb/crossover", runs, kind="crossover_map", methods={"one": "one", "two": "two"})
    drawing = crossover_map(Manifest.of(content), load(tmp_path))
    rows = [[cell.text for cell in row] for row in drawing.tables[0].rows]
    assert [row[2:] for row in rows] == [
        ["2", "0.0200 (0.04)", "0.2000 (0.80)", "one smaller", "one smaller"],
        ["8", "0.4900 (0.98)", "0.6000 (1.20)", NEITHER, "one smaller"],
        ["2048", "0.4000 (0.80)", "0.2000 (0.40)", "two smaller", "two smaller"],
    ]
    assert drawing.verdict == "2 of 2 places where one leads are as predicted"
