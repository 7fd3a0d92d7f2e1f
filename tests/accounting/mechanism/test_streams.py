"""Draws depend on (run, purpose, index) alone, noise is never reused, and it has the right distribution.

Kolmogorov-Smirnov as in the trusted libraries: 1,536 draws; p > 0.025 at the true std, p < 0.05 at 2/3 and 3/2 of it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from rawls.accounting.mechanism.streams import (
    DRAWN_AT_ONCE,
    NOISE_BLOCK,
    WHOLE_BLOCK,
    WHOLE_BLOCK_NUMBERS,
    FleetNoise,
    Streams,
)


def normal(streams: Streams, index: int, size: int = 64, std: float = 1.0) -> torch.Tensor:
    values = torch.zeros(size)
    streams.add_normal(values, std, index)
    return values


def test_equal_addresses_give_equal_draws_in_any_order() -> None:
    first = [normal(Streams("a"), index) for index in (0, 1, 2)]
    again = [normal(Streams("a"), index) for index in (2, 1, 0)][::-1]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert Streams("a").generator("x", 3).random() == Streams("a").generator("x", 3).random()


@pytest.mark.parametrize("size", [7, 64, WHOLE_BLOCK_NUMBERS // WHOLE_BLOCK + 1])
def test_noise_depends_on_its_index_whatever_was_drawn_before(size: int) -> None:
    """Some blocks' noise in order, against each index asked of a new object and of one asked in a random order."""
    straight, shuffled = Streams("a"), Streams("a")
    indices = WHOLE_BLOCK + NOISE_BLOCK
    in_order = [normal(straight, index, size) for index in range(indices)]
    order = np.random.default_rng(0).permutation(indices)
    for index in (*order, *order[:3], *order[:3]):
        normal(shuffled, index, size + 1)  # other shapes of the same purpose have draws of their own
        assert torch.equal(normal(shuffled, index, size), in_order[index])
        assert torch.equal(normal(Streams("a"), index, size), in_order[index])
    assert len({values.numpy().tobytes() for values in in_order}) == indices


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 15, 16, 17, DRAWN_AT_ONCE + 1])
def test_noise_of_a_large_model_is_drawn_as_at_once(beyond: int, dtype: torch.dtype) -> None:
    """As it was before it was drawn part by part, and so is what the generator draws next."""
    zeros = torch.zeros(DRAWN_AT_ONCE + beyond, dtype=dtype)
    generator = Streams("a")._noise_generator(zeros, 0, "noise")
    expected = [torch.empty_like(zeros).normal_(generator=generator) for _ in range(2)]
    streams = Streams("a")
    for index in range(2):
        found = zeros.clone()
        streams.add_normal(found, 1.0, index)
        assert torch.equal(found, expected[index])


def test_noise_is_never_reused() -> None:
    draws = [normal(Streams(key), index) for key in "ab" for index in range(100)]
    values = torch.cat(draws).numpy()
    assert len(np.unique(values)) > 0.999 * len(values)  # single precision repeats some; a draw used twice takes 0.005
    seeds = {Streams("a").seed(purpose, index) for purpose in ("noise", "sampling") for index in range(1000)}
    assert len(seeds) == 2000


@pytest.mark.parametrize("size", [7, WHOLE_BLOCK_NUMBERS // WHOLE_BLOCK + 1])
def test_a_fleet_gets_each_run_its_own_noise(size: int) -> None:
    """As each run alone, bit for bit, whatever the others' scales and purposes; a scale that changes is taken up."""
    keys, purposes = ("a", "b", "c"), ("gradient", "gradient", "other")
    together = FleetNoise([Streams(key) for key in keys])
    first, changed = (1.0, 0.0, 2.0), (3.0, 0.5, 2.0)
    for index, stds in ((0, first), (1, first), (2, changed), (WHOLE_BLOCK, changed)):
        values = torch.zeros(3, size)
        together.add(values, stds, index, purposes)
        for run, key in enumerate(keys):
            alone = torch.zeros(size)
            Streams(key).add_normal(alone, stds[run], index, purposes[run])
            assert torch.equal(values[run], alone)


def test_secure_noise_of_a_fleet_does_not_repeat() -> None:
    fleet = FleetNoise([Streams("a", secure=True), Streams("b")])
    one, other = torch.zeros(2, 7), torch.zeros(2, 7)
    for values in (one, other):
        fleet.add(values, (1.0, 1.0), 0, ("noise", "noise"))
    assert not torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


@pytest.mark.parametrize("bit", [0, 31, 32, 63, 64, 127])
def test_every_bit_of_a_seed_counts(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.Generator.manual_seed drops all but 32 bits on a CPU: two steps of a long run would share their noise."""
    seeds = iter([12345, 12345 ^ (1 << bit), 12345])
    monkeypatch.setattr(Streams, "seed", lambda self, purpose, index: next(seeds))
    one, other, again = (normal(Streams("a"), 0) for _ in range(3))
    assert torch.equal(one, again)
    assert not torch.isin(one, other).any()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("std", [0.5, 2.0])
def test_distribution_of_the_noise(secure: bool, std: float) -> None:
    streams = Streams("ks", secure=secure)
    draws = torch.cat([normal(streams, index, 512, std) for index in range(3)]).numpy()
    for claimed, is_true in ((std, True), (2 / 3 * std, False), (1.5 * std, False)):
        p_value = stats.kstest(draws, "norm", args=(0, claimed)).pvalue
        # A secure draw can't be seeded: it is accepted down to one in a million, so that the test is no lottery.
        assert p_value > (1e-6 if secure else 0.025) if is_true else p_value < 0.05


def test_secure_draws_do_not_repeat() -> None:
    assert not torch.equal(normal(Streams("a", secure=True), 0), normal(Streams("a", secure=True), 0))
    one, other = (Streams("a", secure=True).generator("x", 0).random() for _ in range(2))
    assert one != other


def test_no_noise_asked_for_is_no_noise() -> None:
    assert torch.equal(normal(Streams("a"), 0, std=0.0), torch.zeros(64))
