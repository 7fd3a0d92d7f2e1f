from pathlib import Path

from rawls.analysis.compare.closing_table import closing_table
from tests.analysis.recent import KINDS, MEANING, recent_store
from tests.analysis.stores import run_id, write_unfinished


def cells(text: str) -> dict[str, list[str]]:
    """Method -> the other cells of its row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows[2:]}


def test_one_row_a_method_with_the_mean_over_its_seeds_and_claim_beside_proven(results_root: Path) -> None:
    recent_store(results_root)
    wanted = [run_id(algorithm, seed) for algorithm in KINDS for seed in (0, 1)]
    text = closing_table(results_root, wanted)
    found, data = cells(text), "Unbalanced MNIST"
    assert list(found) == ["dpsgd", "dpsur", "idp_sgd", "dp_is_sgd", "sgd"]  # by budget, those without one last
    assert found["dpsgd"] == [data, "ε = 1", "50.5 ± 0.7", "80.0 ± 0.0", "2", "0.99", "0.99"]
    assert found["dpsur"] == [data, "ε = 1", "54.5 ± 0.7", "80.0 ± 0.0", "2", "0.61 (accepted_only)", "0.99"]
    assert found["dp_is_sgd"] == [data, "noise 1.1", "56.5 ± 0.7", "80.0 ± 0.0", "2", "3.25", "3.25"]
    assert found["sgd"] == [data, "no privacy", "52.5 ± 0.7", "80.0 ± 0.0", "2", "–", "no privacy"]
    assert f"Claim by accepted_only: {MEANING}." in text


def test_settings_of_a_method_have_a_row_each_and_say_what_tells_them_apart(results_root: Path) -> None:
    recent_store(results_root)
    for seed, rate in enumerate((0.1, 0.5)):
        path = results_root / "runs" / run_id("dpsgd", seed) / "config.yaml"
        path.write_text(path.read_text() + f"optimizer: {{lr: {rate}}}\n")
    found = cells(closing_table(results_root, [run_id("dpsgd", seed) for seed in (0, 1)]))
    assert list(found) == ["dpsgd (lr 0.1)", "dpsgd (lr 0.5)"]
    assert [row[2] for row in found.values()] == ["50.0", "51.0"]


def test_what_is_not_done_is_not_told_of(results_root: Path) -> None:
    recent_store(results_root, seeds=1)
    write_unfinished(results_root, "a", "failed")
    assert closing_table(results_root, ["a"]) == ""
    assert list(cells(closing_table(results_root, ["a", run_id("sgd", 0)]))) == ["sgd"]
