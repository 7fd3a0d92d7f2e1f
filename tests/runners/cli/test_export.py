"""`rawls export` and `rawls predict`, from the command line."""

from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from tests.runners.release.runs import table, trained


def test_a_label_means_its_run_and_several_are_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    of_table = table(tmp_path)
    run = trained(tmp_path / "results", *of_table, "algorithm=dpsgd", "privacy=eps8")
    assert main(["export", "dpsgd", "to=mine"]) == 0
    said = capsys.readouterr().out
    assert "mine/MODEL_CARD.md" in said and "privacy.secure=true`" in said and "rawls predict mine FILE" in said
    assert main(["predict", "mine", "persons.csv"]) == 0
    said = capsys.readouterr().out
    assert "persons.predictions.csv: the class of 400 rows" in said and "  WGA " in said
    assert main(["predict", run.name[:8], "persons.csv", "out=other.csv"]) == 0
    columns = [(tmp_path / name).read_text().splitlines() for name in ("persons.predictions.csv", "other.csv")]
    assert len(columns[0]) == len(columns[1]) == 401

    trained(tmp_path / "results", *of_table, "algorithm=dpsgd", "privacy=eps8", "seed=1")
    capsys.readouterr()
    assert main(["export", "dpsgd"]) == 2
    said = capsys.readouterr().err
    assert "algorithm dpsgd has 2 runs: give the id of one" in said and f"{run.name} (seed 0)" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export"], "rawls export takes a run"),
        (["export", "a", "b"], "rawls export takes a run"),
        (["export", "asc", "too=x"], "does not know 'too=x': did you mean to"),
        (["predict", "asc"], "rawls predict takes an exported folder or a run and a file"),
        (["predict", "asc", "x.csv"], "holds no runs"),
        (["export", "abcd1234"], "has no run 'abcd1234'"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, f"results.root={tmp_path}"]) == 2
    assert sentence in capsys.readouterr().err
