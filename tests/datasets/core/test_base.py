"""What holds for every dataset of conf/dataset (a new YAML is picked up by itself), and shared helpers.

Files of one's own have no twin: what holds for them is in tests/datasets/own.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rawls.datasets.core.base import (
    MOST_BYTES,
    MOST_ROWS,
    Data,
    Dataset,
    InMemory,
    Provenance,
    inputs_digest,
    rows_at_once,
)
from rawls.datasets.core.image_classes import ImageClasses
from rawls.datasets.core.picked import Picked
from rawls.datasets.core.splits import (
    SMALLEST_CUT,
    Split,
    addressed,
    apportion,
    cut,
    draw,
    seeded_split,
    shares_of_parts,
)
from tests.datasets.own.made import OWN
from tests.tree import ROOT

RECIPES = sorted(path for path in (ROOT / "conf" / "dataset").glob("*.yaml") if path.stem not in OWN)
# Their papers train on the official or monthly parts, or by one split: every seed has the same rows.
OFFICIAL_SPLIT = {
    "bank_fraud",
    "blog",
    "celeba",
    "celeba_blond",
    "celeba_eyeglasses",
    "celeba_hair",
    "civilcomments",
    "mnli",
}  # and ImageClasses
OFFICIAL_TEST = {"pneumonia", "unbalanced_mnist"}


def specify(recipe: Path, **changed: Any) -> Dataset:
    spec = instantiate({**OmegaConf.load(recipe), **changed})
    assert isinstance(spec, Dataset)
    return spec


def sizes(data: Data, rows: np.ndarray) -> list[int]:
    counts = [0] * (int(data.groups.max()) + 1)
    for group in data.groups[torch.from_numpy(rows)].tolist():
        counts[group] += 1
    return counts


def numbers(inputs: torch.Tensor) -> torch.Tensor:
    """Inputs as rows of numbers, by which they may be near each other: of tokens, the share of each in 256 classes."""
    if inputs.is_floating_point():
        return inputs.flatten(1)
    counts = torch.zeros(len(inputs), 256).scatter_add_(1, inputs % 256, (inputs > 0).float())
    return counts / counts.sum(1, keepdim=True)


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: recipe.stem)
def recipe(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


@pytest.fixture(scope="module")
def twin(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return specify(recipe, provenance="simulated").load(tmp_path_factory.mktemp("empty"))


class TestEveryDataset:
    def test_the_recipe_states_every_field(self, recipe: Path) -> None:
        spec = specify(recipe)
        assert spec.name == recipe.stem
        assert {field.name for field in fields(spec)} == set(OmegaConf.load(recipe)) - {"_target_"}

    def test_without_files_the_twin_stands_in_unless_real_data_are_insisted_on(
        self, recipe: Path, tmp_path: Path
    ) -> None:
        spec = specify(recipe)
        if spec.found(tmp_path) == "real":
            assert spec.load(tmp_path).provenance == "real"
            return
        assert spec.found(tmp_path) == "simulated"
        assert spec.load(tmp_path).provenance == "simulated"
        told = spec.sources[0].sha256 if spec.sources else "not under"
        with pytest.raises(ValueError, match=rf"{told}.*rawls data {spec.name}.*put it"):
            specify(recipe, provenance="real").load(tmp_path)

    def test_a_cut_of_real_data_is_a_subset(
        self, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the twin passed off as the real files."""
        spec = specify(recipe, provenance="real")
        passed_off = replace(spec.simulate(), provenance="real")
        monkeypatch.setattr(type(spec), "read", lambda *_: passed_off)
        longest = max(len(part) for part in passed_off.splits(3))
        for limit, expected in ((None, "real"), (longest, "real"), (longest - 1, "subset")):
            cut_spec = specify(recipe, provenance="real", max_examples=limit)
            assert cut_spec.load(tmp_path).provenance == expected
            assert cut_spec.provenance == "real"
        assert specify(recipe, provenance="real", half_of=0).load(tmp_path).provenance == "subset"
        assert specify(recipe, provenance="simulated", max_examples=500).load(tmp_path).provenance == "simulated"

    def test_shapes_and_types(self, recipe: Path, twin: Data) -> None:
        assert twin.provenance == "simulated"
        assert not twin.sources
        assert twin.labels.dtype == twin.groups.dtype == torch.int64
        assert twin.labels.shape == twin.groups.shape == (len(twin.labels),)
        assert set(twin.labels.tolist()) == set(range(twin.num_classes))
        assert set(twin.groups.tolist()) == set(range(len(specify(recipe).group_names)))
        batch = twin.inputs.gather(torch.tensor([3, 0, 3]))
        assert batch.dtype in (torch.float32, torch.int64)
        assert batch.shape == (3, *twin.inputs.shape)
        assert batch.isfinite().all()

    def test_parts_are_sorted_disjoint_and_hold_every_group(self, twin: Data) -> None:
        split = twin.splits(0)
        every = np.concatenate(split)
        assert len(np.unique(every)) == len(every)
        assert 0 <= every.min() <= every.max() < len(twin.labels)
        for part in split:
            assert part.dtype == np.int64
            assert (np.diff(part) > 0).all()
            assert min(sizes(twin, part)) > 0 or part is split.valid and len(part) == 0

    def test_the_twin_has_the_declared_imbalance(self, recipe: Path, twin: Data) -> None:
        declared = specify(recipe).paper_group_sizes
        for seed in (0, 1):
            assert tuple(sizes(twin, twin.splits(seed).train)) == declared
        assert declared is not None
        assert declared.index(min(declared)) in specify(recipe).minority_groups

    def test_a_split_depends_on_the_seed_alone(self, recipe: Path, twin: Data) -> None:
        first, again, other = (twin.splits(seed) for seed in (5, 5, 6))
        for name, part, same, different in zip(Split._fields, first, again, other, strict=True):
            assert np.array_equal(part, same)
            assert sizes(twin, part) == sizes(twin, different)
            official = recipe.stem in OFFICIAL_SPLIT or isinstance(specify(recipe), ImageClasses)
            fixed = official or (recipe.stem in OFFICIAL_TEST and name == "test")
            assert np.array_equal(part, different) == (fixed or len(part) == 0)

    def test_rows_are_gathered_one_by_one_or_together_alike(self, twin: Data) -> None:
        rows = torch.from_numpy(np.random.default_rng(0).integers(len(twin.labels), size=17))
        alone = torch.cat([twin.inputs.gather(row.view(1)) for row in rows])
        assert torch.equal(twin.inputs.gather(rows), alone)
        if isinstance(twin.inputs, InMemory):
            scale = 255 if twin.inputs.tensor.dtype == torch.uint8 else 1
            assert torch.allclose(alone.float(), twin.inputs.tensor[rows].float() / scale)

    def test_a_twin_is_the_same_when_made_again(self, recipe: Path, twin: Data, tmp_path: Path) -> None:
        again = specify(recipe, provenance="simulated").load(tmp_path)
        rows = torch.arange(0, len(twin.labels), len(twin.labels) // 50)
        assert torch.equal(again.groups, twin.groups)
        assert torch.equal(again.inputs.gather(rows), twin.inputs.gather(rows))

    def test_a_cut_keeps_the_minority(self, recipe: Path, twin: Data, tmp_path: Path) -> None:
        """Where all seeds have one split they share the cut too, and nothing else is left of the data."""
        limit = max(500, 20 * len(specify(recipe).group_names))
        small = specify(recipe, provenance="simulated", max_examples=limit).load(tmp_path)
        numbers_of = small.inputs.rows if isinstance(small.inputs, Picked) else np.arange(len(twin.labels))
        assert isinstance(small.inputs, Picked) == twin.one_split
        assert len(small.labels) == len(small.groups) == len(numbers_of)
        for part, whole in zip(small.splits(2), twin.splits(2), strict=True):
            assert len(part) == min(limit, len(whole))
            rows = numbers_of[part]
            assert set(rows) <= set(whole)
            assert torch.equal(small.labels[torch.from_numpy(part)], twin.labels[torch.from_numpy(rows)])
            floors = [min(SMALLEST_CUT, size) for size in sizes(twin, whole)]
            assert all(size >= floor for size, floor in zip(sizes(small, part), floors, strict=True))
        first, again, other = (small.splits(seed).train for seed in (2, 2, 3))
        assert np.array_equal(first, again)
        assert sizes(small, first) == sizes(small, other)
        assert np.array_equal(first, other) == twin.one_split
        if twin.one_split:
            assert len(small.labels) == sum(map(len, small.splits(2)))
            some = torch.arange(0, len(small.labels), 37)
            assert torch.equal(small.inputs.gather(some), twin.inputs.gather(torch.from_numpy(numbers_of)[some]))

    def test_halves_are_of_one_split_and_equally_large(self, recipe: Path, twin: Data, tmp_path: Path) -> None:
        """Whatever the seed, half of each label in each group; of two seeds, about half agree (n rows, seeds 4 and 5).

        Within 4 standard errors of a half they do by chance; seeds that decided nothing, or a split each, would not.
        """
        halves = specify(recipe, provenance="simulated", half_of=3).load(tmp_path)
        whole, kinds = twin.splits(3), twin.groups.numpy() * twin.num_classes + twin.labels.numpy()
        most = int(kinds.max()) + 1
        for seed in (4, 5):
            split, left_out = halves.splits(seed), halves.left_out(seed)
            assert np.array_equal(np.sort(np.concatenate([split.train, left_out])), whole.train)
            assert np.array_equal(split.valid, whole.valid) and np.array_equal(split.test, whole.test)
            wanted = (np.bincount(kinds[whole.train], minlength=most) + 1) // 2
            assert np.array_equal(np.bincount(kinds[split.train], minlength=most), wanted)
        assert np.array_equal(halves.splits(4).train, halves.splits(4).train)
        both = np.isin(halves.splits(4).train, halves.splits(5).train).mean()
        assert abs(both - 0.5) < 4 * 0.5 / np.sqrt(len(halves.splits(4).train))
        assert len(twin.left_out(4)) == 0

    def test_a_twin_can_be_learnt(self, twin: Data) -> None:
        """Nearest class mean, of texts that of how often words occur: accuracy above chance by 0.1, and not so if the
        true labels are permuted.

        Seed 0, at most 3,000 rows, 14 test rows or more of each class: against permuted labels the accuracy averaged
         over classes is chance +- 0.014 or less, so 0.1 above is accepted for the twin's signal only.
        """
        labels = twin.labels.numpy()
        generator = addressed(0, "test")
        limits = np.full(twin.num_classes, 3000 // twin.num_classes)
        parts = twin.splits(0)
        picked = [
            torch.from_numpy(draw(part, labels, np.minimum(np.bincount(labels[part]), limits), generator)[0])
            for part in (parts.train, parts.test)
        ]
        train, test = (numbers(twin.inputs.gather(rows)) for rows in picked)
        known, truth = (twin.labels[rows] for rows in picked)
        means = torch.stack([train[known == label].mean(0) for label in range(twin.num_classes)])
        guesses = torch.cdist(test, means).argmin(1)
        permuted = truth[torch.from_numpy(generator.permutation(len(truth)))]
        accuracy, by_luck = (
            float(torch.stack([(guesses[answer == label] == label).float().mean() for label in known.unique()]).mean())
            for answer in (truth, permuted)
        )
        assert accuracy > 1 / twin.num_classes + 0.1 > by_luck


@dataclass(frozen=True, kw_only=True)
class Lopsided(Dataset):
    """Two groups, one of which no training row has."""

    name: ClassVar[str] = "lopsided"
    group_names: ClassVar[tuple[str, ...]] = ("many", "none")
    minority_groups: ClassVar[tuple[int, ...]] = (1,)

    @property
    def paper_group_sizes(self) -> None:
        return None

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self.simulate()

    def simulate(self) -> Data:
        groups = torch.tensor([0, 0, 1])
        parts = [np.array([0]), np.array([1]), np.array([2])]
        return Data(
            inputs=InMemory(torch.zeros(3, 1)),
            labels=groups,
            groups=groups,
            num_classes=2,
            provenance="simulated",
            sources={},
            splits=lambda seed: Split(*parts),
        )


def test_parts_have_their_shares_of_each_group_and_need_no_validation() -> None:
    groups = np.repeat([1, 0, 1], [40, 30, 30])
    rows = np.setdiff1d(np.arange(100), [0, 99])  # 30 and 68
    for validation, wanted in ((0.0, ([24, 54], [0, 0], [6, 14])), (0.25, ([18, 40], [6, 14], [6, 14]))):
        split = seeded_split(rows, groups, addressed(3, "test"), test=0.2, validation=validation)
        assert np.array_equal(np.sort(np.concatenate(split)), rows)
        for part, shares, of_sizes in zip(
            split, wanted, shares_of_parts([30, 68], test=0.2, validation=validation), strict=True
        ):
            assert np.bincount(groups[part], minlength=2).tolist() == shares == of_sizes.tolist()
            assert part.dtype == np.int64


def test_an_empty_training_group_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="group 'none' of dataset lopsided has no training rows with seed 4"):
        Lopsided(provenance="simulated").load(tmp_path).splits(4)


@pytest.mark.parametrize("wanted", ["real", "subset"])
def test_other_data_than_were_asked_for_are_refused(tmp_path: Path, wanted: Provenance) -> None:
    sentence = rf"^dataset\.provenance={wanted} was asked for, but what lopsided has is simulated: set [^\n]+$"
    with pytest.raises(ValueError, match=sentence):
        Lopsided(provenance=wanted).load(tmp_path)


def test_a_cut_too_small_for_the_groups_is_refused() -> None:
    groups = np.repeat([0, 1], [50, 5])
    with pytest.raises(ValueError, match="max_examples=20 .* at least 21"):
        cut(np.arange(55), groups, 2, 20, addressed(0, "test"))
    assert len(cut(np.arange(55), groups, 2, 21, addressed(0, "test"))) == 21


def test_inputs_in_memory_are_bytes_single_precision_or_tokens() -> None:
    for refused in (torch.float64, torch.int32):
        with pytest.raises(ValueError, match=f"must be uint8, float32 or int64, not {refused}"):
            InMemory(torch.zeros(2, 3, dtype=refused))
    bytes_ = InMemory(torch.tensor([[0, 51, 255]], dtype=torch.uint8))
    assert bytes_.shape == (3,)
    assert torch.allclose(bytes_.gather(torch.tensor([0])), torch.tensor([[0.0, 0.2, 1.0]]))
    tokens = InMemory(torch.tensor([[101, 102, 0], [101, 7592, 102]]))
    assert torch.equal(tokens.gather(torch.tensor([1])), torch.tensor([[101, 7592, 102]]))


def test_a_digest_of_inputs_tells_them_and_their_files_and_nothing_else() -> None:
    data = Lopsided(provenance="simulated").simulate()
    changed = {
        "an input": replace(data, inputs=InMemory(torch.tensor([[0.0], [0.0], [1e-9]]))),
        "a shape": replace(data, inputs=InMemory(torch.zeros(3, 1, 1))),
        "a row": replace(data, inputs=InMemory(torch.zeros(4, 1)), labels=torch.zeros(4, dtype=torch.int64)),
        "a file": replace(data, sources={"rows.csv": "0"}),
    }
    digests = {name: inputs_digest(other) for name, other in changed.items()}
    assert len({inputs_digest(data), *digests.values()}) == 5
    labels = torch.tensor([1, 1, 0])
    assert inputs_digest(replace(data, labels=labels, groups=labels, num_classes=3)) == inputs_digest(data)


def test_generators_differ_by_seed_and_purpose() -> None:
    draws = {(seed, purpose): addressed(seed, purpose).random() for seed in (0, 1) for purpose in ("a", "b")}
    assert len(set(draws.values())) == 4
    assert addressed(1, "a").random() == draws[1, "a"]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.data())
def test_apportioned_shares_add_up_and_are_within_one_of_exact(counts: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(counts)))
    shares = apportion(total, counts)
    assert shares.sum() == total
    for share, count in zip(shares, counts, strict=True):
        assert abs(share - total * count / sum(counts)) < 1
        assert share <= count


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 9), st.integers(1, 200))
def test_cuts_have_the_limit_and_the_floors(counts: list[int], seed: int, limit: int) -> None:
    groups = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(groups))
    floors = [min(SMALLEST_CUT, count) for count in counts]
    if limit < min(sum(floors), len(rows)):
        with pytest.raises(ValueError, match="at least"):
            cut(rows, groups, len(counts), limit, addressed(seed, "test"))
        return
    kept = cut(rows, groups, len(counts), limit, addressed(seed, "test"))
    assert len(kept) == min(limit, len(rows))
    assert (np.diff(kept) > 0).all()
    assert all(np.sum(groups[kept] == group) >= floor for group, floor in enumerate(floors))


def test_a_draw_takes_each_row_of_a_group_equally_often() -> None:
    """Seeds 0 to 3,999, 2 of 5 rows: counts are 1,600 +- 31; accept within 124, which rejects 3 of 5."""
    groups = np.array([0, 0, 0, 0, 0, 1])
    counts = np.zeros(6)
    for seed in range(4000):
        taken, left = draw(np.arange(6), groups, [2, 0], addressed(seed, "test"))
        assert sorted([*taken, *left]) == list(range(6))
        counts[taken] += 1
    assert counts[5] == 0
    assert (abs(counts[:5] - 1600) < 124).all()
    assert abs(4000 * 3 / 5 - 1600) > 124


@pytest.mark.parametrize(("shape", "expected"), [((784,), MOST_ROWS), ((3, 224, 224), 445), ((3, 10_000, 10_000), 1)])
def test_a_pass_over_many_rows_gathers_no_more_than_fits(shape: tuple[int, ...], expected: int) -> None:
    rows = rows_at_once(InMemory(torch.empty((1, *shape), dtype=torch.uint8)))
    assert rows == expected
    assert rows == 1 or 4 * rows * int(np.prod(shape)) <= MOST_BYTES
