"""Tables of Gaussian losses against the package's own, which looks every loss up by itself."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as package
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from rawls.accounting.accountants import gaussian_losses as ours
from rawls.accounting.accountants.base import RELATIONS
from rawls.accounting.events import Neighbouring


@pytest.mark.parametrize("adjacency", list(AdjacencyType))
@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.1, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("noise", [0.3, 1.0, 7.0, 300.0])
def test_every_delta_is_the_packages(noise: float, rate: float, adjacency: AdjacencyType) -> None:
    losses = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=adjacency)
    bounds = losses.connect_dots_bounds()
    edges = [0.0, -math.log1p(-rate), math.log1p(-rate)] if rate < 1 else [0.0]  # where no output loses more, or all do
    epsilons = np.unique(
        [*np.linspace(bounds.epsilon_lower, bounds.epsilon_upper, 201), *(edge * (1 + 1e-9) for edge in edges)]
    )
    assert ours.profile(losses, epsilons, rate) == pytest.approx(losses.get_delta_for_epsilon(epsilons), abs=2e-15)


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.01), (0.6, 1.0), (5.0, 0.2)])
def test_composed_they_are_the_packages(noise: float, rate: float, neighbouring: Neighbouring) -> None:
    table = ours.gaussian_losses(noise, rate, neighbouring, 1e-4).self_compose(50)
    whole = package.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-4, sampling_prob=rate, neighboring_relation=RELATIONS[neighbouring]
    ).self_compose(50)
    for delta in (1e-2, 1e-5, 1e-8):
        assert table.get_epsilon_for_delta(delta) == pytest.approx(whole.get_epsilon_for_delta(delta), rel=1e-6)


def test_a_table_of_half_the_noise_is_told_apart() -> None:
    """What the tests above must reject."""
    losses = GaussianPrivacyLoss(1.0, sampling_prob=0.1, adjacency_type=AdjacencyType.REPLACE)
    other = GaussianPrivacyLoss(0.5, sampling_prob=0.1, adjacency_type=AdjacencyType.REPLACE)
    epsilons = np.linspace(0.01, 1, 20)
    assert np.abs(ours.profile(losses, epsilons, 0.1) - other.get_delta_for_epsilon(epsilons)).min() > 1e-3
