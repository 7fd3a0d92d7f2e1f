"""From a file that nobody prepared to a ranked table, as one who has it would go."""

import csv
import random
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main

FEW = ["algorithm=dpsgd,asc,dp_is_sgd,sgd", "seed=0,1", "optimizer.lr=0.2"]
QUICK = ["scale=smoke", "privacy.epsilon=8", "tracking=off", "hydra.launcher.workers=1", *FEW]


def defective(path: Path, *, corrected: bool) -> None:
    """People of two sexes, behind a byte-order mark and semicolons, with five defects.

    Cells without a value; 'n/a'; a word among numbers; a person without a label; a group of one.
    """
    draw = random.Random(0)
    rows = [["id", "sex", "age", "education", "hours", "country", "income"]]
    for number in range(1, 2001):
        sex = "female" if draw.random() < 0.3 else "male"
        age, hours = draw.randint(18, 79), round(draw.gauss(38, 9), 1)
        education = draw.choice(["low", "middle", "middle", "high"])
        value = 0.1 * (age - 45) + 2 * (education == "high") - 2 * (education == "low") - (sex == "female")
        income = "more" if value + draw.gauss(0, 0.5) > 0 else "less"
        rows.append([str(number), sex, str(age), education, str(hours), "NL", income])
    for row in rows[1::50]:
        row[4] = ""
    for row in rows[7::300]:
        row[3] = "n/a"
    rows[20][2] = "41" if corrected else "about forty"
    rows[30][6] = ""
    rows[40][1] = "other"
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)


@pytest.mark.system  # some twenty runs
def test_a_table_with_five_defects_is_led_to_a_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    defective(tmp_path / "people.csv", corrected=False)
    asked = ["choose", "dataset=table", "dataset.path=people.csv", "dataset.label=incme", "dataset.group=sex", *QUICK]

    def refused() -> str:
        assert main(asked) == 2
        return capsys.readouterr().err

    assert "the column 'incme', which is not there: did you mean income?" in refused()
    asked[3] = "dataset.label=income"
    assert "group 'other' (1 row); set dataset.small_groups=drop" in refused()
    asked.append("dataset.small_groups=drop")
    assert "column 'age' holds numbers, but texts in 1 cell, the first 'about forty' in row 20" in refused()
    assert not (tmp_path / "results" / "runs").exists(), "nothing was trained"

    defective(tmp_path / "people.csv", corrected=True)
    assert main(asked) == 0
    told = capsys.readouterr()
    for finding in (
        "1 row without income left out, the first is row 30",
        "left out: 'other' (1 row)",
        "that cells of education and hours are missing is public",
        "no input: it numbers the rows",
        "no input: the same in all rows",
    ):
        assert finding in told.err
    lines = told.out.splitlines()
    ranked = [line.split("|")[1:3] for line in lines if line.startswith("|")][2:]
    assert [rank.strip() for rank, _ in ranked] == ["1", "2", "3", "–"]
    assert ranked[3][1].strip() == "SGD (no privacy)"
    assert any(line.startswith(("Take ", "No method reaches")) for line in lines)
    command = next(line.split() for line in lines if "privacy.secure=true" in line)
    assert {"dataset.small_groups=drop", "privacy.epsilon=8", "dataset.path=people.csv"} <= set(command)
    assert main([*command[1:], "tracking=off"]) == 0
    assert "ε = 8" in capsys.readouterr().out


@pytest.mark.system  # sixty thousand rows
def test_the_dutch_census_goes_from_its_columns_to_a_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (shared_data / "dutch" / "dutch_census_2001.arff").read_text(encoding="utf-8")
    head, _, cells = text.partition("@data")
    names = [line.split()[1] for line in head.splitlines() if line.startswith("@attribute")]
    (tmp_path / "dutch.csv").write_text("\n".join([",".join(names), cells.strip()]), encoding="utf-8")
    told = ["dataset=table", "dataset.path=dutch.csv", "dataset.label=occupation", "dataset.group=sex"]
    assert main(["data", *told[0].split("=")[1:], *told[1:]]) == 0
    found = capsys.readouterr().out
    advice = next(line for line in found.splitlines() if "if they are codes" in line)
    assert "60,420 rows of 12 columns" in found and "age (12)" in advice
    assert main(["choose", *told, advice.split("set ")[1], *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:] == ["1", "2", "3", "–"]
    assert any(line.startswith("Take ") for line in lines), "there is something to learn, for both sexes"
