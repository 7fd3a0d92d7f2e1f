from pathlib import Path

from rawls.analysis.pages.dashboard.stored import experiments, state
from tests.analysis.stores import write_run, write_unfinished


def test_the_state_changes_with_runs_and_not_with_their_steps(results_root: Path) -> None:
    seen = [state(results_root)]
    write_run(results_root, "a")
    seen.append(state(results_root))
    folder = write_unfinished(results_root, "b", "running")
    seen.append(state(results_root))
    (folder / "history.jsonl").write_text("{}\n")
    (results_root / "workers").mkdir()
    (results_root / "workers" / "a.json").write_text("{}")  # a sign of life
    assert state(results_root) == seen[-1]
    folder.rename(folder.with_name("b.failed"))
    seen.append(state(results_root))
    folder.with_name("b.failed").rename(folder.with_name("b"))
    seen.append(state(results_root))
    assert len(set(seen)) == 5


def test_a_target_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    good, bad = tmp_path / "asc" / "fig9.yaml", tmp_path / "asc" / "bad.yaml"
    good.parent.mkdir()
    good.write_text("title: A figure\ndraw: {kind: training_curve}\n")
    bad.write_text("title: [")
    found = experiments((bad, good, tmp_path / "asc" / "none.yaml"))
    assert {name: (one.title, one.paper, one.table) for name, one in found.items()} == {
        "asc/fig9": ("A figure", "asc", "fig9")
    }
