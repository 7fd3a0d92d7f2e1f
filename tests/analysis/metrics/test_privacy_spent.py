from pathlib import Path
from typing import Any

from rawls.analysis.draw.tables import Table
from rawls.analysis.metrics.privacy_spent import Privacy, privacy
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from rawls.runners.store.checksums import of_files
from tests.analysis.stores import entry, manifest, write_json, write_run, write_unfinished

RELEASE = {
    "name": "gradient", "law": {"law": "uniform_without_replacement"}, "noise_std": 2.0, "first_step": 0, "count": 60,
    "events": [
        {"kind": "gaussian", "noise_multiplier": 4.0, "sampling": {"law": "without_replacement", "population": 100,
                                                                  "batch": 5}},
        None,
        {"kind": "gaussian", "noise_multiplier": 5.0, "sampling": {"law": "without_replacement", "population": 10,
                                                                  "batch": 5}},
    ],
}  # fmt: skip
PUBLIC = "group sizes are public"
DATA = "Unbalanced\N{NO-BREAK SPACE}MNIST"


def spent(root: Path, runs: list[tuple[str, str, dict[str, Any]]]) -> Privacy | None:
    """What is said of runs (id, label, changes of the summary) that each have a ledger of two lines."""
    for seed, (run, label, changes) in enumerate(runs):
        write_run(root, run, algorithm=label, seed=seed, **changes)
        releases = [RELEASE, {**RELEASE, "noise_std": 3.0, "count": 1_000}]
        write_json(root / "runs" / run / "ledger.json", {"releases": releases, "assumptions": [PUBLIC]})
    items = [entry(run, label=label, seed=seed) for seed, (run, label, _) in enumerate(runs)]
    drawn = Manifest.of(manifest("asc/table1", [*items, entry("z")], kind="accuracy_table"))
    return said_of(root, drawn)


def said_of(root: Path, drawn: Manifest) -> Privacy | None:
    store = load(root)
    return privacy(store, drawn.join(store), drawn.methods)


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def plan(**changes: Any) -> dict[str, Any]:
    return {"covered_groups": [0, 1, 2], "assumptions": [PUBLIC], **changes}


def test_what_is_claimed_proven_and_spent_is_told_apart(results_root: Path) -> None:
    weak = plan(covered_groups=[0, 1], epsilon_per_group=[0.9, 1.0, 14.0], assumptions=[PUBLIC, "not for minorities"])
    found = spent(
        results_root,
        [
            ("w", "azb_weak", {"plan": weak, "ledger_epsilon_per_group": [0.9, 1.0, 13.5]}),
            ("a", "asc", {"plan": plan(), "ledger_epsilon_per_group": [0.8, 0.7, 0.99]}),
            ("b", "asc", {"plan": plan(), "ledger_epsilon_per_group": [0.8, 0.7, 0.95]}),
        ],
    )
    assert found is not None
    assert texts(found.epsilons) == [
        [
            "ASC",
            DATA,
            "RDP",
            "replace-one",
            "1",
            "1.02e-05",
            "9.609",
            "0.990",
            "0.990",
            "0.950 – 0.990",
            "every group",
            "2",
        ],
        [
            "aZB-weak",
            DATA,
            "RDP",
            "replace-one",
            "1",
            "1.02e-05",
            "9.609",
            "1.000",
            "14.000",
            "13.500",
            "all but 8",
            "1",
        ],
    ]
    assert [[cell.bold for cell in row].count(True) for row in found.epsilons.rows] == [0, 1]
    assert found.epsilons.rows[1][8].bold
    assert texts(found.groups)[2:] == [
        ["ASC", DATA, "8", "–", "yes", "1", "0.990", "0.950 – 0.990"],
        ["aZB-weak", DATA, "0", "–", "yes", "1", "0.900", "0.900"],
        ["aZB-weak", DATA, "1", "–", "yes", "1", "1.000", "1.000"],
        ["aZB-weak", DATA, "8", "–", "no", "1", "14.000, above the target", "13.500"],
    ]
    assert found.assumptions == [f"{PUBLIC} (all methods)", "not for minorities (aZB-weak)"]


def test_releases_are_counted_and_their_values_are_ranges(results_root: Path) -> None:
    found = spent(results_root, [("a", "asc", {"plan": plan()})])
    assert found is not None
    assert texts(found.releases) == [
        ["ASC", DATA, "gradient", "uniform without replacement", "1", "1\N{NARROW NO-BREAK SPACE}060", "2 – 3", "4 – 5",
         "0.05 – 0.5"],
    ]  # fmt: skip


def test_without_a_finished_run_nothing_is_spent(results_root: Path) -> None:
    write_unfinished(results_root, "a", "failed")
    drawn = Manifest.of(manifest("asc/table1", [entry("a"), entry("b", seed=1)], kind="accuracy_table"))
    assert said_of(results_root, drawn) is None


def test_a_plan_released_nothing(results_root: Path) -> None:
    write_run(results_root, "a", provenance="plan only", plan=plan(), ledger_epsilon_per_group=None)
    drawn = Manifest.of(manifest("asc/calibration", [entry("a")], kind="accuracy_table"))
    found = said_of(results_root, drawn)
    assert found is not None and found.releases is None
    assert texts(found.epsilons)[0][9] == "–"


def test_the_sheet_of_the_first_seed_is_found_and_runs_of_earlier_versions_have_none(results_root: Path) -> None:
    found = spent(results_root, [("a", "asc", {"plan": plan()}), ("b", "asc", {"plan": plan()})])
    assert found is not None and found.sheets == {}
    for run in ("a", "b"):
        folder = results_root / "runs" / run
        (folder / "privacy.md").write_text(f"# Sheet of {run}, ε", encoding="utf-8")
        names = [path.name for path in folder.iterdir()]
        (folder / "checksums.json").write_text(of_files(folder, names), encoding="utf-8")
    drawn = Manifest.of(manifest("asc/table1", [entry("a", seed=0), entry("b", seed=1)], kind="accuracy_table"))
    again = said_of(results_root, drawn)
    assert again is not None and again.sheets == {f"ASC, {DATA}, ε = 1": "# Sheet of a, ε"}
    (results_root / "runs" / "a" / "privacy.md").write_bytes(b"\xff")
    damaged = said_of(results_root, drawn)
    assert damaged is not None, "a run whose sheet is not what was written is left out, and the next seed's is shown"
    assert damaged.sheets == {f"ASC, {DATA}, ε = 1": "# Sheet of b, ε"}
