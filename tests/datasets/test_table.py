"""A table of one's own: what is found in it, what it becomes, and what is said of one that is wrong."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rawls.datasets.core.base import Data, InMemory
from rawls.datasets.table import Table
from rawls.runners.config.compose import compose, resolve, run_id
from tests.datasets.own.made import persons, write

SEEDS = (0, 1, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "persons.csv", persons())


def table(path: Path, **fields: Any) -> Table:
    given: dict[str, Any] = {"path": str(path), "label": "paid", "group": "sex"}
    return Table(**given | fields)


def loaded(path: Path, **fields: Any) -> Data:
    return table(path, **fields).load(Path("nowhere"))


def inputs(data: Data) -> torch.Tensor:
    assert isinstance(data.inputs, InMemory)
    return data.inputs.tensor


def changed(path: Path, **columns: Any) -> Path:
    """The table with these columns in the place of its own; None leaves one out."""
    found = persons() | columns
    return write(path, {name: cells for name, cells in found.items() if cells is not None})


def sentence(path: Path, **fields: Any) -> str:
    with pytest.raises(ValueError) as caught:
        loaded(path, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_table_is_data_like_others(path: Path) -> None:
    spec, data, cells = table(path), loaded(path), persons()
    assert spec.group_names == ("f", "m") and data.num_classes == 2
    assert [spec.group_names[group] for group in data.groups.tolist()] == cells["sex"]
    assert data.labels.tolist() == [int(paid == "well") for paid in cells["paid"]]
    assert data.provenance == "real" and list(data.sources) == ["persons.csv"]
    sizes = np.bincount(data.groups.numpy()[data.splits(0).train])
    assert spec.minority_groups == (int(np.argmin(sizes)),) == (0,)
    # age; three jobs and none; height and none; two sexes; three clinics
    assert inputs(data).shape == (240, 1 + 4 + 2 + 2 + 3) and inputs(data).dtype == torch.float32


def test_inputs_are_fitted_on_rows_that_are_never_tested(path: Path) -> None:
    """By pandas: changing what is tested changes no other row's inputs."""
    data = loaded(path)
    split, age = data.splits(0), pd.Series(persons()["age"], dtype=float)
    known = age[np.concatenate([split.train, split.valid])]
    expected = (age - known.mean()) / known.std()
    assert np.allclose(inputs(data)[:, 0], expected, atol=1e-5)
    moved = age.copy()
    moved[split.test] += 1000
    other = loaded(changed(path, age=moved.astype(int).tolist()))
    others = np.setdiff1d(np.arange(240), split.test)
    assert torch.equal(inputs(other)[others], inputs(data)[others])
    assert np.array_equal(other.splits(0).test, split.test)


def test_a_stated_split_is_kept_and_fitted_on_its_training_rows(path: Path) -> None:
    part = ["train", "train", "dev", "test"] * 60
    data = loaded(changed(path, part=part), split="part")
    for seed in SEEDS:
        split = data.splits(seed)
        assert split.train.tolist() == [row for row in range(240) if row % 4 < 2]
        assert split.valid.tolist() == list(range(2, 240, 4)) and split.test.tolist() == list(range(3, 240, 4))
    age = np.array(persons()["age"], dtype=float)
    train = age[data.splits(0).train]
    assert np.allclose(inputs(data)[:, 0], (age - train.mean()) / train.std(ddof=1), atol=1e-5)
    assert inputs(data).shape[1] == 12, "the column of parts is no input"


def test_roles_are_no_inputs_but_for_groups_and_what_is_dropped_is_none(path: Path) -> None:
    assert inputs(loaded(path, owner="clinic")).shape[1] == 9
    assert inputs(loaded(path, drop=("sex", "job"))).shape[1] == 1 + 2 + 3
    data = loaded(path, owner="clinic")
    assert data.owners is not None and data.owner_names == ("east", "north", "south")
    assert [data.owner_names[owner] for owner in data.owners.tolist()] == persons()["clinic"]


def test_bounds_leave_nothing_to_be_assumed_of_numbers(path: Path) -> None:
    free = table(path, bounds={"age": (0, 100), "height": (100, 200)}, drop=("job", "sex", "clinic"))
    assert np.allclose(inputs(free.load(Path()))[:, 0], np.array(persons()["age"]) / 100)
    assert free.assumptions == ("that cells of height are missing is public (an input says of which rows)",)
    read = table(path, drop=("job", "sex", "clinic"))
    assert read.assumptions[0].startswith("mean and standard deviation of age and height are public (they scale")


def test_groups_may_be_cut_crossed_merged_and_left_out(path: Path) -> None:
    assert table(path, group="age", thresholds={"age": (40,)}).group_names == ("age below 40", "age from 40")
    crossed = table(path, group=("sex", "clinic")).group_names
    assert crossed == tuple(f"{sex}, {clinic}" for sex in "fm" for clinic in ("east", "north", "south"))
    sex = ["x" if row == 5 else "y" if row in (6, 7, 8, 9, 11, 12) else own for row, own in enumerate(persons()["sex"])]
    few = changed(path, sex=sex)
    assert "group 'x' (1 row), 'y' (6 rows)" in sentence(few) or "group 'x' (1 row);" in sentence(few)
    assert "x" not in table(few, small_groups="drop").group_names
    assert len(loaded(few, small_groups="drop").labels) < 240


def test_rows_without_a_label_are_left_out_and_said(path: Path) -> None:
    paid = ["?" if row in (3, 100) else own for row, own in enumerate(persons()["paid"])]
    spec = table(changed(path, paid=paid))
    assert len(spec.load(Path()).labels) == 238
    assert "- 2 rows without paid left out, the first is row 4" in spec.findings.splitlines()


def test_what_was_found_is_told(path: Path) -> None:
    frame = persons()
    order = list(range(240))
    spec = table(
        write(path, {"": order, **frame, "number": order[::-1], "same": ["x"] * 240}),
        owner="clinic", drop=("height",), bounds={"age": (20, 70)},
    )  # fmt: skip
    outside = sum(not 20 <= int(str(age)) <= 70 for age in frame["age"])
    assert outside > 0
    found = spec.findings.splitlines()
    assert found[0] == f"{path}: 240 rows of 9 columns by commas, in UTF-8"
    cells = [re.split(r"  +", line.strip()) for line in found[1:10]]
    assert cells == [
        ["column", "holds", "missing", "used as"],
        ["column 1", "numbers, 0 to 239", "0", "no input: it numbers the rows"],
        ["age", "numbers, 18 to 79", "0", "1 input, scaled by its bounds 20 and 70"],
        ["job", "3 texts", "14", "4 bits, one for missing"],
        ["sex", "2 texts", "0", "group; 2 bits"],
        ["clinic", "3 texts", "0", "owner"],
        ["paid", "2 texts", "0", "label"],
        ["number", "numbers, 0 to 239", "0", "1 input, scaled by mean and deviation"],
        ["same", "1 texts", "0", "no input: the same in all rows"],
    ]
    rest = "\n".join(found[10:])
    badly = frame["paid"].count("badly")
    for line in (
        f"2 classes of paid: badly ({badly}), well ({240 - badly})",
        "- no inputs, by dataset.drop: height",
        f"- {outside} cells of age outside of dataset.bounds, taken to the nearer one",
        "- number is another whole number in every row: if it only names the row, leave it out by "
        "dataset.drop=[number]",
        "- 8 inputs, less than a MB",
        "read outside the accounting, and therefore assumed:",
        "- mean and standard deviation of number are public (they scale the inputs outside the accounting)",
    ):
        assert f"\n{line}\n" in f"\n{rest}\n"
    split, sexes = spec.load(Path()).splits(0), spec.load(Path()).groups.numpy()
    counts = [str(int((sexes[part] == 0).sum())) for part in split]
    assert re.search(rf"^ +f +{' +'.join(counts)} +± {98 / int(counts[2]) ** 0.5:.1f} points$", rest, re.MULTILINE)
    assert "3 owners of clinic: east (" in rest


def test_a_value_that_only_test_rows_have_is_said(path: Path) -> None:
    test_row = int(loaded(path).splits(0).test[0])
    job = ["pilot" if row == test_row else own for row, own in enumerate(persons()["job"])]
    spec = table(changed(path, job=job))
    told = "- 1 cell of job outside of the training rows with a value that those do not have: none of its bits is set"
    assert told in spec.findings.splitlines()
    assert inputs(spec.load(Path()))[test_row, 1:5].tolist() == [0, 0, 0, 0]


def test_few_whole_numbers_may_be_codes_and_halves_or_many_are_none(path: Path) -> None:
    rows = range(240)
    columns = {
        "code": [10 + row % 4 for row in rows],
        "bit": [row % 2 for row in rows],
        "half": [row % 5 / 2 for row in rows],
        "many": [row % 21 for row in rows],
    }
    changed(path, **columns)
    told = (
        "- few different whole numbers, taken as amounts: code (4); if they are codes, set dataset.as_category=[code]"
    )
    assert told in table(path).findings.splitlines()
    assert "taken as amounts" not in table(path, as_category=("code",)).findings
    assert "taken as amounts" not in table(path, bounds={"code": (10, 13)}).findings


@pytest.mark.parametrize(
    ("columns", "fields", "words"),
    [
        ({}, {"label": "payd"}, "dataset.label names the column 'payd', which is not there: did you mean paid? (the"),
        ({}, {"group": ("sex", "clinc")}, "dataset.group names the column 'clinc', which is not there: did you mean"),
        ({}, {"group": ()}, "dataset.group names no column: give one, or several that cross"),
        ({}, {"owner": "clinics"}, "dataset.owner names the column 'clinics', which is not there: did you mean"),
        ({}, {"split": "part"}, "dataset.split names the column 'part', which is not there"),
        ({}, {"drop": ("jobs",)}, "dataset.drop names the column 'jobs', which is not there: did you mean job?"),
        ({}, {"as_category": ("ages",)}, "dataset.as_category names the column 'ages', which is not there: did you"),
        ({}, {"bounds": {"ages": (0, 1)}}, "dataset.bounds names the column 'ages', which is not there: did you mean"),
        ({}, {"bounds": {"job": (0, 1)}}, "dataset.bounds names 'job', whose cells are texts: leave it out"),
        ({}, {"bounds": {"paid": (0, 1)}}, "dataset.bounds names 'paid', which is no number among the inputs: leave"),
        ({}, {"bounds": {"age": (1, 1)}}, "dataset.bounds={age:[1,1]} must be a lower and a higher number"),
        ({}, {"thresholds": {"age": (1,)}}, "dataset.thresholds names 'age', which is no column of the label or the"),
        ({}, {"label": "height"}, "dataset.label=height holds 162 different numbers, and what is"),
        ({}, {"group": "age"}, "dataset.group=age holds 61 different numbers, and a group has a name: cut them by"),
        ({"paid": ["well"] * 240}, {}, "dataset.label=paid is 'well' in every row, so there is nothing to learn"),
        ({"sex": ["f"] * 240}, {}, "dataset.group=sex makes one group of all rows, 'f', so there is nothing to"),
        ({"age": ["old", *range(239)]}, {}, "column 'age' holds numbers, but texts in 1 cell, the first 'old' in row"),
        ({"job": [f"job {row}" for row in range(240)], "clinic": [""] * 240}, {"owner": "clinic"},
         "dataset.owner=clinic is empty in 240 rows, first in row 1: every row needs an owner"),
        ({"sex": ["x", *persons()["sex"][1:]]}, {}, "too small to have rows in every part: group 'x' (1 row); set"),
        ({"part": ["train", "valid"] * 120}, {"split": "part"}, "dataset.split=part has no row in test: name some,"),
        ({"part": ["test"] * 240}, {"split": "part"}, "dataset.split=part has no row in train: name some, or null"),
        ({}, {"drop": ("age", "job", "height", "sex", "clinic")}, "PATH has no column for an input beside those"),
        (dict.fromkeys(("age", "job", "height", "clinic")), {"drop": ("sex",)}, "PATH has no column for"),
        ({name: [] for name in persons()}, {}, "PATH has a line of names and no rows: give a table with rows"),
        ({}, {"provenance": "simulated"}, "files of your own have no simulated twin: leave dataset.provenance out"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_the_way_out(
    columns: dict[str, Any], fields: dict[str, Any], words: str, path: Path
) -> None:
    assert sentence(changed(path, **columns), **fields).startswith(words.replace("PATH", str(path)))


def test_a_table_that_changes_is_read_again(path: Path) -> None:
    assert len(loaded(path).labels) == 240
    write(path, persons(200))
    assert len(loaded(path).labels) == 200


def test_parts_are_cut_and_halved_as_those_of_others(path: Path) -> None:
    whole, spec = loaded(path), table(path)
    small = replace(spec, max_examples=60).load(Path())
    assert small.provenance == "subset" and len(small.splits(0).train) == 60
    halves = replace(spec, half_of=0).load(Path())
    assert set(halves.splits(3).train) < set(whole.splits(0).train)


ASKED = ["dataset=table", "dataset.label=paid", "dataset.group=sex", "algorithm=dpsgd", "scale=smoke"]


def test_a_run_is_told_by_what_its_file_holds_wherever_it_lies(path: Path, tmp_path: Path) -> None:
    def told(path: Path, *more: str) -> str:
        return run_id(resolve(compose([*ASKED, f"dataset.path={path}", *more])))

    elsewhere = tmp_path / "other" / "copy.csv"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(path.read_bytes())
    ours = told(path)
    assert told(elsewhere) == ours
    elsewhere.write_bytes(path.read_bytes() + b"44,cook,170,f,north,well\n")
    assert told(elsewhere) != ours
    assert told(path, "dataset.drop=[age]") != ours


@pytest.mark.parametrize("field", ["path", "label", "group"])
def test_what_must_be_given_is_asked_for(field: str, path: Path) -> None:
    given = [text for text in [*ASKED, f"dataset.path={path}"] if not text.startswith(f"dataset.{field}=")]
    with pytest.raises(ValueError, match=rf"^dataset\.{field} has no value: set dataset\.{field}=VALUE$"):
        compose(given)


def test_a_file_that_is_not_there_is_said_when_it_is_asked_for(path: Path) -> None:
    with pytest.raises(ValueError, match=r"person\.csv is not there: did you mean .*/persons\.csv\?$"):
        compose([*ASKED, f"dataset.path={path.with_name('person.csv')}"])


def test_columns_are_named_on_the_command_line(path: Path) -> None:
    more = ["dataset.group=[sex,clinic]", "dataset.bounds={age:[0,100]}", "dataset.thresholds={sex:[1]}"]
    found = compose([*ASKED, f"dataset.path={path}", "dataset.group=[sex,clinic]", "dataset.bounds={age:[0,100]}"])
    assert found.dataset.group == ["sex", "clinic"] and found.dataset.bounds == {"age": [0.0, 100.0]}
    with pytest.raises(ValueError, match=r"dataset.thresholds=\{sex:\[1\.0\]\} cuts numbers, and row 1 holds"):
        compose([*ASKED, f"dataset.path={path}", *more])
