"""Label noise: how much, of whom, and that nobody else hears of it."""

import numpy as np
import torch

from rawls.datasets.core.base import Data, InMemory
from rawls.datasets.core.label_noise import with_label_noise
from rawls.datasets.core.splits import Split

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 400))
TRAIN = np.arange(1_500)


def noisy(share: float) -> Data:
    split = Split(TRAIN, np.zeros(0, dtype=np.int64), np.arange(1_500, 2_000))
    data = Data(
        inputs=InMemory(torch.zeros(2_000, 1)),
        labels=torch.from_numpy(LABELS),
        groups=torch.from_numpy(LABELS),
        num_classes=5,
        provenance="real",
        sources={},
        splits=lambda seed: split,
    )
    return with_label_noise(data, TRAIN, share)


def test_a_share_of_each_class_is_told_as_any_other_class_and_the_rest_as_it_is() -> None:
    """Of 150 flips over 4 seeds each of the 20 pairs has 30 on average: 11 to 49 are within 3.5 deviations of 5.4."""
    data, pairs = noisy(0.1), np.zeros((5, 5), dtype=int)
    for seed in range(4):
        told = data.told(seed).numpy()
        wrong = np.flatnonzero(told != LABELS)
        sizes = np.bincount(LABELS[TRAIN])
        assert np.bincount(LABELS[wrong], minlength=5).tolist() == np.rint(0.1 * sizes).astype(int).tolist()
        assert wrong.max() < 1_500
        np.add.at(pairs, (LABELS[wrong], told[wrong]), 1)
    assert not np.diag(pairs).any()
    assert pairs[~np.eye(5, dtype=bool)].min() >= 11 and pairs.max() <= 49


def test_what_is_evaluated_and_grouped_stays_clean() -> None:
    data = noisy(0.5)
    assert torch.equal(data.labels, torch.from_numpy(LABELS)) and torch.equal(data.groups, data.labels)
    assert torch.equal(data.told(0)[1_500:], data.labels[1_500:])


def test_the_seed_decides_who_is_told_wrong() -> None:
    data = noisy(0.1)
    assert torch.equal(data.told(3), data.told(3)) and not torch.equal(data.told(3), data.told(4))
    assert torch.equal(noisy(0).told(3), data.labels)
    assert bool((noisy(1).told(0)[:1_500] != data.labels[:1_500]).all())
