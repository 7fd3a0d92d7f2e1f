"""What columns say of rows: classes, groups that cross, owners, parts; and what is said of those that say nothing."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from rawls.datasets.core.own.columns import Column, gathered
from rawls.datasets.core.own.roles import Named, classes, groups, owners, stated_parts


def column(name: str, cells: Sequence[Any]) -> Column:
    return gathered([{name: pa.array(list(cells))}], [name])[name]


def told(found: Named) -> list[str | None]:
    """What each row is called."""
    return [None if code < 0 else found.names[code] for code in found.codes]


def label(cells: Sequence[Any], thresholds: dict[str, tuple[float, ...]] | None = None, *names: str) -> Named:
    return classes(column("paid", cells), thresholds or {}, names)


def group(*cells: Sequence[Any], thresholds: dict[str, tuple[float, ...]] | None = None, names: Any = ()) -> Named:
    return groups([column("abc"[place], own) for place, own in enumerate(cells)], thresholds or {}, names)


def test_classes_are_texts_in_order_and_missing_ones_are_none() -> None:
    found = label(["well", "", "badly", "well", "?"])
    assert found.names == ("badly", "well")
    assert told(found) == ["well", None, "badly", "well", None]


def test_classes_of_whole_numbers_are_those_numbers_however_they_are_written() -> None:
    found = label(["10", "9", "1.0", "1", "NA"])
    assert found.names == ("paid=1", "paid=9", "paid=10")
    assert told(found) == ["paid=10", "paid=9", "paid=1", "paid=1", None]


def test_numbers_that_are_names_are_classes_of_any_kind() -> None:
    assert label(["0.5", "1.5", "0.5"], None, "paid").names == ("paid=0.5", "paid=1.5")


def test_thresholds_cut_numbers_into_classes() -> None:
    found = label([1, 10, 9.9, 20, 50, None], {"paid": (10, 20)})
    assert found.names == ("paid below 10", "paid 10 to 20", "paid from 20")
    assert told(found) == [
        "paid below 10", "paid 10 to 20", "paid below 10", "paid from 20", "paid from 20", None,
    ]  # fmt: skip


def test_groups_of_several_columns_cross_where_they_occur() -> None:
    found = group(["m", "f", "m", "f"], [2, 1, 1, 1])
    assert found.names == ("f, b=1", "m, b=1", "m, b=2")
    assert told(found) == ["m, b=2", "f, b=1", "m, b=1", "f, b=1"]


def test_a_missing_group_is_a_group() -> None:
    assert told(group(["m", "", "f"])) == ["m", "a (missing)", "f"]
    assert told(group([30.0, None, 60.5], thresholds={"a": (50,)})) == ["a below 50", "a (missing)", "a from 50"]


def test_owners_are_those_that_are_named() -> None:
    assert told(owners(column("clinic", ["north", "east", "north"]))) == ["north", "east", "north"]
    assert owners(column("clinic", [10, 9, 10])).names == ("9", "10")


def test_parts_have_many_names() -> None:
    cells = ["Train", "dev", "TEST", "validation", "training", "testing", "val", "valid"]
    assert stated_parts(column("part", cells)).tolist() == [0, 1, 2, 1, 0, 2, 1, 1]


MANY_TEXTS = [f"name {number}" for number in range(300)]
MANY_NUMBERS = list(range(300))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: label(["yes"] * 3), "dataset.label=paid is 'yes' in every row, so there is nothing to learn: name"),
        (lambda: label([7, 7, None]), "dataset.label=paid is 'paid=7' in every row, so there is nothing to learn"),
        (lambda: label(["", "NA"]), "dataset.label=paid is empty in every row, so there is nothing to learn"),
        (lambda: label([1, 2.5]),
         "dataset.label=paid holds 2 different numbers, and what is trained here tells classes apart: cut them by "
         "dataset.thresholds={paid:[NUMBER,…]}, or, if they are codes, set dataset.as_category=[paid]"),
        (lambda: label(MANY_NUMBERS), "dataset.label=paid holds 300 different numbers, and what"),
        (lambda: label(MANY_TEXTS), "dataset.label=paid has 300 different texts, and classes are at most 100"),
        (lambda: label(["1", "2", "x"], {"paid": (1,)}), "dataset.thresholds={paid:[1]} cuts numbers, and row 3"),
        (lambda: label([1, 2], {"paid": ()}), "dataset.thresholds={paid:[]} must be one number or more, each above"),
        (lambda: label([1, 2], {"paid": (2, 2)}), "dataset.thresholds={paid:[2, 2]} must be one number or more"),
        (lambda: group(range(21)),
         "dataset.group=a holds 21 different numbers, and a group has a name: cut them by "
         "dataset.thresholds={a:[NUMBER,…]}, or, if they are codes, set dataset.as_category=[a]"),
        (lambda: group([0.5, 1]), "dataset.group=a holds 2 different numbers, and a group has a name"),
        (lambda: group(MANY_TEXTS), "dataset.group=a has 300 different texts, and groups are at most 256: name"),
        (lambda: group(MANY_TEXTS[:20] * 20, sorted(MANY_TEXTS[:20] * 20)),
         "dataset.group=[a, b] makes 400 groups, of which 256 are the most: name fewer columns, or such with"),
        (lambda: owners(column("clinic", ["a", "", "b", ""])),
         "dataset.owner=clinic is empty in 2 rows, first in row 2: every row needs an owner"),
        (lambda: stated_parts(column("part", ["train", None])), "dataset.split=part is empty in 1 row, first in row 2"),
        (lambda: stated_parts(column("part", ["train", "holdout"])),
         "dataset.split=part says of each row which part it is in, one of train, training, valid, validation, val, "
         "dev, test, testing, and not something else as in 'holdout': name another column, or null to have the rows"),
    ],
)  # fmt: skip
def test_what_says_nothing_of_a_row_is_said(ask: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}") as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_as_many_as_may_be_are_not_refused() -> None:
    assert len(label(MANY_TEXTS[:100]).names) == 100 and len(label(MANY_NUMBERS[:20]).names) == 20
    assert len(group(MANY_TEXTS[:256]).names) == 256 and len(group(MANY_NUMBERS[:20]).names) == 20
    assert len(group(MANY_NUMBERS[:256], names=["a"]).names) == 256
