"""What is said of a model's inputs is what its dataset makes of a row."""

from pathlib import Path
from typing import Any

from rawls.runners.config.compose import composer
from rawls.runners.training.inputs import described
from rawls.runners.training.setup import load
from tests.runners.release.runs import images, table


def told(*overrides: str) -> dict[str, Any]:
    config = composer()([*overrides, "scale=smoke"])
    return described(config, load(config))


def test_of_arrays_their_shape_and_whether_bytes_are_shares() -> None:
    digits = told("dataset=digits")
    assert (digits["kind"], digits["shape"], digits["dtype"]) == ("arrays", [1, 8, 8], "float32")
    assert digits["classes"] == digits["groups"] == [f"digit {number}" for number in range(10)]
    assert told("dataset=celeba", "dataset.provenance=simulated")["classes"] == ["0", "1"]
    assert "digits" in digits["meaning"] and digits["in_bytes"] is False and "columns" not in digits
    mnist = told("dataset=unbalanced_mnist", "dataset.provenance=simulated")
    assert (mnist["in_bytes"], mnist["dtype"]) == (True, "float32")
    tokens = told("dataset=surnames", "dataset.provenance=simulated")
    assert tokens["dtype"] == "int64" and len(tokens["classes"]) == 18


def test_of_a_table_its_columns_classes_and_groups(tmp_path: Path) -> None:
    found = told(*table(tmp_path))
    assert found["kind"] == "table" and found["classes"] == ["badly", "well"]
    assert [column["name"] for column in found["columns"]] == ["age", "job", "height", "sex", "clinic"]
    assert tuple(found["columns"][0]["bounds"]) == (18, 80)
    assert found["label"] == "paid" and found["group"] == ["sex", "clinic"]
    assert len(found["groups"]) == 6 and "f, north" in found["groups"]
    assert any("standard deviation of height" in text for text in found["assumed"])


def test_of_a_folder_of_images_their_size(tmp_path: Path) -> None:
    found = told(*images(tmp_path), "model=cifar_cnn")
    assert (found["kind"], found["image_size"], found["shape"]) == ("images", 16, [3, 16, 16])
    assert found["classes"] == ["no", "yes"] and found["groups"] == ["a", "b"]
