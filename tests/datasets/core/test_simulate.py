"""Synthetic images: the formula by a naive loop, and the addressing of rows."""

import numpy as np
import pytest
import torch

from rawls.datasets.core.simulate import SimulatedImages, smooth_fields

SHAPE = (3, 8, 6)


@pytest.fixture
def means() -> np.ndarray:
    return smooth_fields(2, SHAPE, np.random.default_rng(3))


def test_fields_are_smooth_and_of_unit_variance() -> None:
    fields = smooth_fields(50, (1, 32, 32), np.random.default_rng(0))
    assert fields.shape == (50, 1, 32, 32)
    assert np.allclose(fields.std(axis=(1, 2, 3)), 1, atol=1e-5)
    steps = np.abs(np.diff(fields, axis=-1)).mean()
    rough = np.random.default_rng(0).standard_normal(fields.shape)
    assert steps < 0.3 * np.abs(np.diff(rough, axis=-1)).mean()


def test_images_lie_in_the_unit_interval_and_follow_their_group(means: np.ndarray) -> None:
    """Seed 1, 4,000 images: the mean image of a group correlates with its own field, not the other's."""
    groups = np.arange(4000) % 2
    images = SimulatedImages(means, groups, seed=1).images(np.arange(4000))
    assert images.dtype == np.float32
    assert 0 <= images.min() < 0.05
    assert 0.95 < images.max() <= 1
    difference = images[groups == 0].mean(0) - images[groups == 1].mean(0)
    assert np.corrcoef(difference.ravel(), (means[0] - means[1]).ravel())[0, 1] > 0.95
    assert np.corrcoef(difference.ravel(), (means[0] + means[1]).ravel())[0, 1] < 0.8


def test_gathered_are_the_images_of_those_rows(means: np.ndarray) -> None:
    twin = SimulatedImages(means, np.array([0, 1, 1]), seed=1)
    gathered = twin.gather(torch.tensor([2, 0]))
    assert gathered.shape == (2, *SHAPE)
    assert np.array_equal(gathered.numpy(), twin.images(np.array([2, 0])))


def test_rows_are_distinct_and_seeds_too(means: np.ndarray) -> None:
    groups = np.zeros(300, dtype=np.int64)
    images = SimulatedImages(means, groups, seed=1).images(np.arange(300))
    assert len(np.unique(images.reshape(300, -1), axis=0)) == 300
    assert not np.array_equal(images, SimulatedImages(means, groups, seed=2).images(np.arange(300)))
