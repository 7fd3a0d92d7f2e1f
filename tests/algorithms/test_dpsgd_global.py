"""DPSGD-Global and Global-Adapt against the formulas, and what the second one claims against what is proven."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rawls.accounting.mechanism.plan import Budget
from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.method import Samples, Task
from tests.algorithms.small import TASK, budget, fleet, member, method_of


def samples(norms: list[float], **public: float) -> Samples:
    of_run = torch.tensor([norms])
    return Samples(
        losses=torch.ones_like(of_run),
        norms=of_run,
        bounds=torch.ones_like(of_run),
        cells=torch.zeros_like(of_run, dtype=torch.int64),
        public={name: torch.tensor([[value]]) for name, value in public.items()},
    )


def test_global_scales_all_alike_and_drops_the_largest() -> None:
    method = method_of("dpsgd_global", max_norm=4.0)
    assert torch.as_tensor(method.importance(samples([0.1, 1.0, 4.0, 4.1]))).tolist() == [[0.25, 0.25, 0.25, 0.0]]


def test_global_enlarges_no_gradient() -> None:
    with pytest.raises(ValueError, match=r"algorithm.max_norm=0.5 must be at least algorithm.clip_norm=1.0"):
        method_of("dpsgd_global", max_norm=0.5)


@pytest.mark.parametrize(
    ("max_norm", "weights"),
    [(4.0, [0.25, 0.25, 0.25, 0.125]), (0.5, [1.0, 1.0, 0.25, 0.125])],  # below C: plain clipping
)
def test_global_adapt_scales_up_to_z_and_clips_above(max_norm: float, weights: list[float]) -> None:
    method = method_of("dpsgd_global_adapt")
    asked = samples([0.1, 1.0, 4.0, 8.0], max_norm=max_norm)
    assert torch.as_tensor(method.importance(asked)).tolist() == [weights]


def test_z_follows_the_count_over_the_expected_batch() -> None:
    """Whole steps, without noise on the count, against the norms that were seen."""
    run = member(method_of("dpsgd_global_adapt", max_norm=3.0, threshold=0.7))
    release = run.present_release()
    run.release = replace(release, beside=tuple(replace(answer, noise_std=0.0) for answer in release.beside))
    stepper, largest = fleet([run]), 3.0
    for step in range(8):
        summed = stepper.step(step)
        norms, weights = summed.norms[0].double().numpy(), summed.weights[0].double().numpy()
        np.testing.assert_allclose(weights, np.minimum(1, 1 / np.maximum(norms, largest)), rtol=2e-5)
        largest *= np.exp((norms > 0.7 * largest).sum() / TASK.batch_size - 0.1)
        assert float(run.state["max_norm"]) == pytest.approx(largest, rel=1e-9)
    assert not 2.9 < largest < 3.1


def test_the_count_is_claimed_as_a_draw_of_its_own() -> None:
    """FDPG's Adult by its rate and steps, noise 1 and 10: 3.4155 claimed, 3.4436 for one release."""
    task = Task(population=Population((92 * 256,)), batch_size=256, steps=1840, steps_per_epoch=92)
    method = method_of("dpsgd_global_adapt")
    given: Budget = replace(budget(), epsilon=None, noise_multiplier=1.0, delta=1e-6, neighbouring=method.neighbouring)
    plan = method.plan(task, given)
    assert plan.claim is not None and plan.claim.rule == "independent_draws"
    assert plan.claim.epsilon == pytest.approx(3.4155, abs=6e-5)
    assert plan.epsilon == pytest.approx(3.4436, abs=6e-5)


NORMS = [0.0, 0.01, 0.5, 3.0, 1e4]


def weigh(name: str, **changed: Any) -> Tensor:
    return torch.as_tensor(method_of(name, **changed).importance(samples(NORMS)))[0]


def test_psac_gives_small_gradients_less_than_auto_s() -> None:
    norms = torch.tensor(NORMS)
    torch.testing.assert_close(weigh("dp_psac"), 1 / (norms + 0.1 / (norms + 0.1)))
    assert weigh("dp_psac")[0] == 1 and weigh("auto_s")[0] == pytest.approx(100)
    assert (weigh("dp_psac") * norms <= 1).all() and weigh("dp_psac")[-1] * 1e4 == pytest.approx(1)


@pytest.mark.parametrize("name", ["dp_is_sgd", "fdpg", "idp_sgd", "ino_sgd"])
def test_there_is_one_way_to_normalise(name: str) -> None:
    method = method_of(name, stability=0.01)
    assert torch.equal(torch.as_tensor(method.importance(samples(NORMS))), weigh("auto_s").unsqueeze(0))
    assert not method.only_clips and method_of(name).only_clips


def test_who_weighs_otherwise_is_asked() -> None:
    class Louder(type(method_of("dp_is_sgd"))):  # type: ignore[misc]
        def importance(self, samples: Samples) -> float:
            return 2.0

    assert not Louder().only_clips
