from pathlib import Path

from rawls.analysis.pages.dashboard.runs import difference
from tests.analysis.pages.dashboard.pages import failures, half_finished, page, text, with_settings
from tests.analysis.stores import run_id, write_json, write_unfinished


def test_settings_that_differ_stand_beside_each_other() -> None:
    one = {"optimizer.lr": 0.1, "seed": 0, "results.root": "a", "dataset": "digits"}
    other = {"optimizer.lr": 0.2, "seed": 0, "results.root": "b", "dataset": "digits", "algorithm.rate": None}
    assert difference(one, other) == [["optimizer.lr", "0.1", "0.2"], ["algorithm.rate", "–", "None"]]


def test_filters_of_a_link_hold(results_root: Path) -> None:
    half_finished(results_root)
    app = page("runs", results_root, method=["ASC"], state=["done"])
    (table,) = app.dataframe
    assert set(table.value["Method"]) == {"ASC"}
    assert len(table.value) == 3
    assert page("runs", results_root, text="no noise").dataframe[0].value["State"].tolist() == ["failed"]
    assert "No run is like that" in text(page("runs", results_root, text="nothing has this"))


def test_the_newest_runs_come_first_and_those_of_a_sweep_by_what_they_are(results_root: Path) -> None:
    for algorithm, day in (("dpsgd", 2), ("asc", 2), ("azb", 1)):
        for seed in (2, 0, 1):
            run = with_settings(results_root, algorithm, seed)
            write_json(results_root / "runs" / run / "environment.json", {"finished": f"2026-01-0{day}T00:00:00+00:00"})
    write_unfinished(results_root, run_id("failed"), "failed")
    (table,) = page("runs", results_root).dataframe
    rows = table.value[["Method", "Seed"]].values.tolist()
    of_a_day = [[method, seed] for method in ("asc", "dpsgd") for seed in range(3)]
    assert rows == [["asc", 0], *of_a_day, *(["azb", seed] for seed in range(3))]
    assert table.value["State"].tolist() == ["failed"] + ["done"] * 9


def test_two_runs_of_a_link_are_compared(results_root: Path) -> None:
    a, b = with_settings(results_root, "asc", 0, lr=0.1), with_settings(results_root, "asc", 0, lr=0.2)
    said = text(page("runs", results_root, a=a[:6], b=b))
    assert "optimizer.lr" in said
    assert "seed</th><td" not in said
    assert "No run begins with zzz" in text(page("runs", results_root, a=a, b="zzz"))


def test_a_failure_shows_its_trace(results_root: Path) -> None:
    failures(results_root)
    app = page("runs", results_root)
    assert [one.label for one in app.expander][0].endswith("ValueError: no noise meets it")
    assert "in calibrate" in text(app)
