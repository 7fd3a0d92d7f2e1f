"""Who owns which row: every setting of INO-SGD's Table in App. D.1, repeatable, and nobody left out."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from omegaconf import MISSING

from rawls.datasets.cardiotocography import Cardiotocography
from rawls.datasets.cifar10 import Cifar10
from rawls.datasets.cifar100 import Cifar100
from rawls.datasets.cifar100_fv import Cifar100Fv
from rawls.datasets.core.base import Data, Dataset
from rawls.datasets.core.owners import (
    LEAST_NORMAL_EPSILON,
    ByClass,
    ByColumn,
    ByGroup,
    ByLabels,
    Mixed,
    NoOwners,
    Owners,
    Ownership,
    PerExample,
    RandomClass,
)
from rawls.datasets.digits import Digits
from rawls.datasets.mnist import Mnist
from rawls.datasets.pneumonia import Pneumonia
from rawls.datasets.surnames import Surnames
from rawls.runners.config.specifications import build, dump
from tests.tree import ROOT

YAMLS = sorted((ROOT / "conf" / "owners").glob("*.yaml"))
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 1000))
HALVES = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))


def assigned(owners: ByLabels, labels: np.ndarray = LABELS, seed: int = 0) -> Ownership:
    return owners.assign(labels, labels % 2, seed)


def budgets(ownership: Ownership) -> np.ndarray:
    assert ownership.epsilons is not None
    return ownership.epsilons


# Of each setting with named owners: its dataset, rows of each owner that are trained on, and their budgets.
EVEN = [0.5 * number for number in range(1, 11)]
NAMED: dict[str, tuple[Dataset, list[int], list[float]]] = {
    "ca": (Cardiotocography(), [1_324, 236, 141], [5, 4, 3]),
    "pn": (Pneumonia(), [1_341, 2_682], [5, 0.5]),
    "mn": (Mnist(), [30_596, 29_404], [0.1, 1]),
    "cm": (Cifar10(), [5_000] * 10, EVEN),
    "cl": (Cifar10(), [5_000] * 10, list(range(6, 16))),
    "cr": (Cifar10(), [5_000] * 10, EVEN),
    "col": (Cifar10(), [5_000] * 10, EVEN),
    "com": (Cifar10(), [5_000] * 10, EVEN),
    "ch": (Cifar100(), [500] * 100, np.linspace(1, 10, 100).tolist()),
    "cf": (Cifar100Fv(), [2_500] * 2, [1, 5]),
    "su": (Surnames(), [7_526, 8_533], [3, 2]),
}
SINGLE = {"cs": Cifar10(), "cfs": Cifar100Fv()}


def chosen(name: str) -> ByLabels:
    owners = build(yaml.safe_load((ROOT / "conf" / "owners" / f"{name}.yaml").read_text("utf-8")), "owners")
    assert isinstance(owners, ByLabels)
    return owners


def trained_on(dataset: Dataset) -> Data:
    """The twin, with nothing but what is trained on with seed 0."""
    data = replace(dataset, provenance="simulated").load(Path("nowhere"))
    rows = torch.from_numpy(data.splits(0).train)
    return replace(data, labels=data.labels[rows], groups=data.groups[rows])


@pytest.mark.parametrize("name", NAMED)
def test_inos_owners_have_the_papers_rows_and_budgets(name: str) -> None:
    """Of owners that overlap, within a row of each other class."""
    dataset, sizes, epsilons = NAMED[name]
    data = trained_on(dataset)
    found = chosen(name).assign(data.labels.numpy(), data.groups.numpy(), 0)
    assert found.names is not None and len(set(found.names)) == len(sizes)
    assert budgets(found).tolist() == pytest.approx(epsilons)
    off = np.abs(np.bincount(found.owner, minlength=len(sizes)) - sizes)
    assert off.max() <= (9 if name in ("col", "com") else 0)


@pytest.mark.parametrize(("name", "share"), [("col", 0.9), ("com", 0.7)])
def test_inos_overlapping_owners_have_a_share_of_their_class(name: str, share: float) -> None:
    labels = trained_on(Cifar10()).labels.numpy()
    found = chosen(name).assign(labels, labels, 0)
    own = [int(np.sum((found.owner == owner) & (labels == owner))) for owner in range(10)]
    assert own == [round(5_000 * share)] * 10


def test_inos_random_owners_keep_their_budgets_and_change_their_class() -> None:
    labels = trained_on(Cifar10()).labels.numpy()
    first, other = (chosen("cr").assign(labels, labels, seed) for seed in (0, 1))
    assert np.array_equal(budgets(first), budgets(other)) and not np.array_equal(first.owner, other.owner)


@pytest.mark.parametrize("name", SINGLE)
def test_inos_single_images_have_budgets_in_the_papers_ranges(name: str) -> None:
    """CS: within .25 of the mean of the class. CFS: N(1, .5) or N(5, .5), none below the least; 4 standard errors."""
    labels = trained_on(SINGLE[name]).labels.numpy()
    found = chosen(name).assign(labels, labels, 0)
    assert found.names is None and len(budgets(found)) == len(labels) == (50_000 if name == "cs" else 5_000)
    if name == "cs":
        distance = budgets(found) - np.array(EVEN)[labels]
        assert 0.249 < np.abs(distance).max() <= 0.25 and budgets(found).min() >= 0.25
    else:
        fish, vehicles = budgets(found)[labels < 5], budgets(found)[labels >= 5]
        assert fish.min() >= LEAST_NORMAL_EPSILON and fish.mean() == pytest.approx(1.03, abs=0.04)
        assert vehicles.mean() == pytest.approx(5, abs=0.04) and vehicles.std() == pytest.approx(0.5, abs=0.03)


def test_the_russians_are_the_majority_with_the_larger_budget() -> None:
    data = trained_on(Surnames())
    found = chosen("su").assign(data.labels.numpy(), data.groups.numpy(), 0)
    assert {Surnames.group_names[label] for label in data.labels.numpy()[found.owner == 0]} == {"Russian"}


def test_label_noise_changes_no_owner() -> None:
    """CFN: whoever has fish has them whatever training is told."""
    clean, noisy = (trained_on(Cifar100Fv(label_noise=share)) for share in (None, 0.1))
    first, other = (chosen("cf").assign(data.labels.numpy(), data.groups.numpy(), 0) for data in (clean, noisy))
    assert np.array_equal(first.owner, other.owner)


def test_even_budgets_rise_by_a_half() -> None:
    """CM: linspace(.5, 5, 10)."""
    found = assigned(ByClass(epsilons=(0.5, 5)))
    assert budgets(found).tolist() == pytest.approx([0.5 * number for number in range(1, 11)])
    assert np.array_equal(found.owner, LABELS)


def test_owners_of_several_classes() -> None:
    found = assigned(ByClass(epsilons=(0.1, 1), classes=HALVES))
    assert np.array_equal(found.owner, LABELS >= 5)
    assert found.names == ("classes 0, 1, 2, 3, 4", "classes 5, 6, 7, 8, 9")


def test_owners_of_groups() -> None:
    found = assigned(ByGroup(epsilons=(1, 2), groups=((1,), (0,))))
    assert np.array_equal(found.owner, 1 - LABELS % 2)
    assert found.names == ("group 1", "group 0")


def test_nobody_owns_anything_apart() -> None:
    found = assigned(NoOwners())
    assert not found.owner.any() and found.names == ("all",) and found.epsilons is None


def test_a_random_class_depends_on_the_seed() -> None:
    """One owner for each class and seed; over 200 seeds, every owner gets every class 5 to 40 times (20 expected)."""
    seen = np.zeros((10, 10), dtype=int)
    for seed in range(200):
        found = assigned(RandomClass(epsilons=(0.5, 5)), seed=seed)
        classes = [set(LABELS[found.owner == owner].tolist()) for owner in range(10)]
        assert sorted(next(iter(own)) for own in classes) == list(range(10)) and {len(own) for own in classes} == {1}
        for owner, own in enumerate(classes):
            seen[owner, next(iter(own))] += 1
    assert seen.min() >= 5 and seen.max() <= 40


@pytest.mark.parametrize("share", [0.9, 0.7, 1.0])
def test_a_mixed_owner_has_its_share_of_its_class_and_the_rest_of_all_others(share: float) -> None:
    found = assigned(Mixed(share=share, epsilons=(0.5, 5)))
    rows = np.array(
        [[np.sum((found.owner == owner) & (label == LABELS)) for label in range(10)] for owner in range(10)]
    )
    assert np.diag(rows).tolist() == [round(1000 * share)] * 10
    others = rows[~np.eye(10, dtype=bool)]
    assert others.max() - others.min() <= 1
    assert np.all(np.abs(rows.sum(1) - 1000) <= 9)


def test_a_budget_for_every_row() -> None:
    """CS: uniform within .25 of the mean of its class; seed 0, 1,000 rows a class."""
    found = assigned(PerExample(epsilons=(0.5, 5), width=0.25))
    assert found.names is None and np.array_equal(found.owner, np.arange(len(LABELS)))
    means = np.linspace(0.5, 5, 10)
    distance = budgets(found) - means[LABELS]
    assert np.abs(distance).max() <= 0.25 and np.abs(distance).max() > 0.249
    for label in range(10):
        assert distance[label == LABELS].mean() == pytest.approx(0, abs=0.02)  # 4.4 standard errors


def test_a_normal_budget_for_every_row() -> None:
    """CFS: N(1, .5) or N(5, .5) by category, none at or below 0; seed 0, 5,000 rows a category."""
    found = assigned(PerExample(epsilons=(1, 5), width=0.5, law="normal", classes=HALVES))
    low, high = budgets(found)[LABELS < 5], budgets(found)[LABELS >= 5]
    assert low.min() >= LEAST_NORMAL_EPSILON
    assert 1.0 < low.mean() < 1.07  # what is cut off lifts 1 to 1.033
    assert high.mean() == pytest.approx(5, abs=0.03) and high.std() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "owners", [RandomClass(epsilons=(1, 2)), Mixed(share=0.8, epsilons=(1, 2)), PerExample(epsilons=(1, 2), width=0.5)]
)
def test_the_seed_decides(owners: ByLabels) -> None:
    once, again, other = (assigned(owners, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(once.owner, again.owner) and np.array_equal(budgets(once), budgets(again))
    assert not (np.array_equal(once.owner, other.owner) and np.array_equal(budgets(once), budgets(other)))


@pytest.mark.parametrize(
    ("owners", "sentence"),
    [
        (ByClass(epsilons=(1, 2, 3)), "3 epsilons are given for 10 owners: give one each, or the first and the last"),
        (ByClass(epsilons=(1, 2), classes=((0, 1), (1, 2))), "class 1 has two owners, 0 and 1: give it to one of them"),
        (ByClass(epsilons=(1, 2), classes=((0, 1), (2, 3))), "nobody owns class 4: name it in the classes of an owner"),
        (ByClass(epsilons=(1, 2), classes=((0,), ())), "every owner needs classes of its own, numbered from 0"),
        (ByClass(epsilons=(1, 2), classes=((0,), (-1,))), "every owner needs classes of its own, numbered from 0"),
        (ByClass(epsilons=(1, 2), classes=(tuple(range(10)), (10,))), "owner 'class 10' has no training rows"),
        (ByGroup(epsilons=(1,), groups=((0,),)), "nobody owns group 1: name it in the groups of an owner"),
        (PerExample(epsilons=(1, 2, 3), width=0.1), "3 epsilons are given for 10 means"),
    ],
)
def test_owners_that_do_not_fit_the_data(owners: ByLabels, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        assigned(owners)


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        (ByColumn, {"epsilons": {"a": 0.0}}, "the epsilon of an owner is positive and finite, but it is 0.0"),
        (ByClass, {"epsilons": (0.0, 1.0)}, "the epsilon of an owner is positive and finite, but it is 0.0"),
        (RandomClass, {"epsilons": (1.0, float("nan"))}, "positive and finite, but it is nan"),
        (Mixed, {"epsilons": (1.0,), "share": 0.0}, "lies above 0 and up to 1, but it is 0.0"),
        (PerExample, {"epsilons": (1.0,), "width": -1.0}, "is finite and not negative, but it is -1.0"),
        (PerExample, {"epsilons": (0.25,), "width": 0.25}, "may be 0 or less: take a smaller width"),
    ],
)
def test_owners_that_make_no_sense(kind: type[Owners], fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        kind(**fields)


CLINICS = replace(
    Digits().load(Path("data")), owners=torch.arange(1797) % 3, owner_names=("east", "north", "south")
)  # fmt: skip


@pytest.mark.parametrize(
    ("epsilons", "expected"),
    [({"south": 3, "east": 1, "north": 2}, [1, 2, 3]), ((4, 5, 6), [4, 5, 6]), ((1, 2), [1, 1.5, 2])],
)
def test_owners_that_the_data_name_have_budgets_by_name_or_in_order(epsilons: Any, expected: list[float]) -> None:
    found = ByColumn(epsilons=epsilons).of(CLINICS, np.array([5, 0, 1, 7]), 0)
    assert found.owner.tolist() == [2, 0, 1, 1] and found.names == ("east", "north", "south")
    assert budgets(found).tolist() == expected


@pytest.mark.parametrize(
    ("epsilons", "rows", "sentence"),
    [
        ({"east": 1, "north": 2}, [0, 1, 2], "owner 'south' has no budget: give it one in owners.epsilons, beside"),
        (
            dict.fromkeys(("east", "north", "south", "west"), 1),
            [0, 1, 2],
            "owners.epsilons names 'west', who owns nothing",
        ),
        ((1, 2, 3, 4), [0, 1, 2], "4 epsilons are given for 3 owners: give one each"),
        ((1, 2, 3), [0, 1], "owner 'south' has no training rows: leave it out"),
    ],
)
def test_owners_that_do_not_fit_those_of_the_data(epsilons: Any, rows: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ByColumn(epsilons=epsilons).of(CLINICS, np.array(rows), 0)
    with pytest.raises(ValueError, match="takes owners from the data, which name none: set dataset.owner=COLUMN"):
        ByColumn(epsilons=epsilons).of(replace(CLINICS, owners=None), np.array(rows), 0)


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_a_yaml_says_every_field_and_is_tested(path: Path) -> None:
    node = yaml.safe_load(path.read_text("utf-8"))
    node = {key: [1, 2] if value == MISSING else value for key, value in node.items()}
    assert dump(build(node, "owners")) == node
    assert path.stem in NAMED.keys() | SINGLE.keys() | {"digits", "column"}


def test_the_default_dataset_has_two_owners_to_try() -> None:
    data = Digits().load(Path("data"))
    split = data.splits(0)
    labels = data.labels.numpy()[split.train]
    found = chosen("digits").assign(labels, labels, 0)
    assert budgets(found).tolist() == [2, 8]
    assert np.bincount(found.owner).min() > 400
