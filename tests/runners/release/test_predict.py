"""The answers to a file's rows, a part at a time, and how right they are by group."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from rawls.datasets.core.own import readers
from rawls.runners.config.errors import ConfigError
from rawls.runners.release import predict
from rawls.runners.release.model import Model, load_model
from rawls.runners.release.predict import predict_file
from tests.datasets.own.made import persons, write
from tests.runners.release.runs import images, table, trained

ARRAYS = {
    "kind": "arrays", "shape": [2], "dtype": "float32", "meaning": "two numbers", "classes": ["no", "yes"],
    "groups": ["few", "many"],
}  # fmt: skip


def answers(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("of_table")
    return load_model(trained(folder / "results", *table(folder), "algorithm=dpsgd", "privacy=eps8"))


def test_in_parts_the_answers_and_accuracies_are_those_of_all_rows(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = persons(300, seed=1)
    path = write(tmp_path / "others.csv", columns)
    whole = predict_file(model, path, tmp_path / "whole.csv")
    monkeypatch.setattr(readers, "BATCH_BYTES", 1500)
    monkeypatch.setattr(predict, "SECONDS_BETWEEN_LINES", 0.0)
    parts = predict_file(model, path, tmp_path / "parts.csv")
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "parts.csv").read_bytes()
    assert whole.rows == parts.rows == 300 and whole.notes == parts.notes == []
    # By hand.
    wanted = model.predict_proba(columns)
    head, *rows = answers(tmp_path / "whole.csv")
    assert head == ["row", "prediction", "probability"] and [row[0] for row in rows] == [str(n + 1) for n in range(300)]
    assert [row[1] for row in rows] == model.predict(columns).tolist()
    assert np.allclose([float(row[2]) for row in rows], wanted.max(1), atol=1e-4)
    right = model.predict(columns) == np.array(columns["paid"])
    groups = np.array([f"{sex}, {clinic}" for sex, clinic in zip(columns["sex"], columns["clinic"], strict=True)])
    shares = {name: right[groups == name].mean() for name in model.groups}
    for told in (whole, parts):
        lines = told.accuracies(model.groups)
        assert lines[: len(shares)] == [
            f"{name}: {100 * share:.1f} % of {(groups == name).sum()} rows" for name, share in shares.items()
        ]
        low, mean = min(shares.values()), np.mean(list(shares.values()))
        assert lines[-2:] == [
            f"WGA {100 * low:.1f} %, AVG {100 * mean:.1f} %",
            f"all: {100 * right.mean():.1f} % of 300 rows",
        ]


def test_without_labels_there_are_answers_alone(model: Model, tmp_path: Path) -> None:
    columns = {name: cells for name, cells in persons(40).items() if name != "paid"}
    answered = predict_file(model, write(tmp_path / "new.csv", columns), tmp_path / "out.csv")
    assert answered.rows == 40 and answered.accuracies(model.groups) == []


def test_what_training_had_not_seen_is_counted_and_said(model: Model, tmp_path: Path) -> None:
    columns = persons(40)
    columns["job"][:3] = ["pilot", "pilot", "judge"]
    columns["clinic"][4:6] = ["west", ""]
    columns["age"][7] = "NA"
    columns["age"][8] = 120
    columns["paid"][9], columns["paid"][10] = "", "fairly"
    answered = predict_file(model, write(tmp_path / "new.csv", columns), tmp_path / "out.csv")
    assert answered.notes == [
        "3 cells of job with a value that training did not have ('pilot', 'judge'): none of its bits is set",
        "1 cell of clinic with a value that training did not have ('west'): none of its bits is set",
        "1 cell of age missing, which none was in training: taken as the middle of its bounds",
        "1 cell of clinic missing, which none was in training: none of its bits is set",
        "1 cell of age outside of dataset.bounds, taken to the nearer one",
    ]
    lines = answered.accuracies(model.groups)
    assert (
        "(no group that the model knows)" in "".join(lines)
        and lines[-1] == "2 rows without a class that the model knows"
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"height": None}, r"has no column 'height' \(it has age, job"),
        ({"height": None, "hight": ["1"] * 40}, "did you mean 'hight'"),
        ({"age": ["12"] * 20 + ["old"] + ["13"] * 19}, "here row 21 holds 'old': correct it"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_nothing_left(
    model: Model, change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    columns = {name: cells for name, cells in (persons(40) | change).items() if cells is not None}
    path = write(tmp_path / "new.csv", columns)
    with pytest.raises(ConfigError, match=sentence):
        predict_file(model, path, tmp_path / "out.csv")
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_folder_of_images_needs_no_table(tmp_path: Path) -> None:
    model = load_model(trained(tmp_path / "results", *images(tmp_path), "algorithm=sgd", "model=cifar_cnn"))
    folder = tmp_path / "faces"
    told = predict_file(model, folder, tmp_path / "told.csv")
    assert told.rows == 60 and told.accuracies(model.groups)[-1].endswith("of 60 rows")
    (folder / "metadata.csv").rename(tmp_path / "aside.csv")
    alone = predict_file(model, folder, tmp_path / "alone.csv")
    assert alone.rows == 60 and alone.accuracies(model.groups) == []
    assert sorted(answers(tmp_path / "told.csv")) == sorted(answers(tmp_path / "alone.csv"))
    (folder / "images" / "7.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"7\.png of .* is missing or altered"):
        predict_file(model, folder, tmp_path / "other.csv")
    with pytest.raises(ConfigError, match="holds no image"):
        predict_file(model, tmp_path / "results", tmp_path / "other.csv")


def test_arrays_are_answered_with_labels_and_groups_by_name_or_number(tmp_path: Path) -> None:
    model = Model(nn.Identity(), ARRAYS)
    inputs = np.array([[0, 1], [1, 0], [0, 1], [0, 1]], dtype=np.float32)  # yes, no, yes, yes
    np.save(tmp_path / "inputs.npy", inputs)
    assert predict_file(model, tmp_path / "inputs.npy", tmp_path / "out.csv").accuracies(model.groups) == []
    assert [row[1] for row in answers(tmp_path / "out.csv")[1:]] == ["yes", "no", "yes", "yes"]
    for labels, groups in ((["yes", "yes", "no", "yes"], ["few", "few", "many", "many"]), ([1, 1, 0, 1], [0, 0, 1, 1])):
        np.savez(tmp_path / "all.npz", inputs=inputs, labels=labels, groups=groups)
        told = predict_file(model, tmp_path / "all.npz", tmp_path / "out.csv").accuracies(model.groups)
        assert told == [
            "few: 50.0 % of 2 rows",
            "many: 50.0 % of 2 rows",
            "WGA 50.0 %, AVG 50.0 %",
            "all: 50.0 % of 4 rows",
        ]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.zeros((2, 2))}, r"has no array 'inputs' \(it has x\)"),
        ({"inputs": np.zeros((2, 3))}, r"of shape \[2, 3\], and the model takes rows of \[2\]: two numbers"),
        ({"inputs": np.full((2, 2), np.nan)}, "2 of 2 rows have inputs that are not finite"),
        ({"inputs": np.zeros((2, 2), dtype=np.int64)}, "the inputs are torch.int64, and the model takes float32"),
        ({"inputs": np.zeros((2, 2)), "labels": np.zeros(3)}, r"labels are of shape \[3\], and there are 2 inputs"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "given.npz", **arrays)
    with pytest.raises(ConfigError, match=sentence):
        predict_file(Model(nn.Identity(), ARRAYS), tmp_path / "given.npz", tmp_path / "out.csv")


def test_what_is_no_such_file_is_refused(model: Model, tmp_path: Path) -> None:
    (tmp_path / "rows.xls").write_text("")
    for name, sentence in (("gone.csv", "there is no file"), ("rows.xls", "rows.xls is none of .csv")):
        with pytest.raises(ConfigError, match=sentence):
            predict_file(model, tmp_path / name, tmp_path / "out.csv")
    with pytest.raises(ConfigError, match="no file of arrays"):
        predict_file(Model(nn.Identity(), ARRAYS), tmp_path / "gone.npy", tmp_path / "out.csv")
    with pytest.raises(ConfigError, match=r"out=.*out\.txt must end with \.csv"):
        predict_file(model, tmp_path / "rows.xls", tmp_path / "out.txt")
