"""One's own arrays as a data set: what is counted before training, and what is refused."""

import numpy as np
import pytest

from rawls.datasets.core.base import Data, InMemory
from rawls.datasets.core.picked import Picked
from rawls.datasets.core.splits import Split
from rawls.runners.training.unusable import unusable

ROWS = 40


def data(inputs: np.ndarray, labels: np.ndarray) -> Data:
    def split(seed: int) -> Split:
        return Split(np.arange(20), np.arange(20, 30), np.arange(30, ROWS))

    return Data.in_memory(
        inputs, labels, np.zeros(ROWS, np.int64), num_classes=3, provenance="real", sources={}, splits=split
    )


LABELS = np.arange(ROWS) % 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted(bad: float) -> None:
    inputs = np.ones((ROWS, 2, 3), np.float32)
    assert unusable(data(inputs.copy(), LABELS)) == ""
    inputs[3, 1, 2] = inputs[3, 0, 0] = inputs[7, 0, 1] = bad
    found = data(inputs, LABELS)
    assert unusable(found).startswith("2 of 40 rows have inputs that are not finite (NaN or infinite): they add")
    picked = Data(**{**vars(found), "inputs": Picked(found.inputs, np.arange(5)), "labels": found.labels[:5]})
    assert unusable(picked).startswith("1 of 5 rows have inputs that are not finite")


def test_bytes_are_finite() -> None:
    assert isinstance(data(np.full((ROWS, 2), 255, np.uint8), LABELS).inputs, InMemory)
    assert unusable(data(np.full((ROWS, 2), 255, np.uint8), LABELS)) == ""


def test_a_label_may_say_more_than_the_class_where_the_loss_reads_it() -> None:
    """As on Appendix D's instance, where it says too whether the loss has an offset."""
    held = vars(data(np.ones((ROWS, 2), np.float32), np.arange(ROWS) % 4)) | {"num_classes": 2}
    assert unusable(Data(**held | {"loss": "shifted_linear"})) == ""
    for loss in ("linear", "cross_entropy"):
        with pytest.raises(ValueError, match="20 of 40 labels are no class, the first is 2: number the 2 classes"):
            unusable(Data(**held | {"loss": loss}))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.where(np.arange(ROWS) == 5, np.nan, 1.0), "labels are torch.float64, 1 of 40 not finite: number the class"),
        (np.where(np.arange(ROWS) == 5, 3, LABELS), "1 of 40 labels are no class, the first is 3: number the 3 class"),
        (np.where(np.arange(ROWS) < 2, -1, LABELS), "2 of 40 labels are no class, the first is -1"),
    ],
)
def test_labels_that_number_no_class_are_refused(labels: np.ndarray, sentence: str) -> None:
    with pytest.raises(ValueError, match="labels") as caught:
        unusable(data(np.ones((ROWS, 2), np.float32), labels))
    assert str(caught.value).startswith(sentence)
