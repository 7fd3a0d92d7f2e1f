"""DP-IS-SGD's law: every group alike, never above 1, at a rate of its own; and the epsilons of WYSIWYG's Fig. 4."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rawls.accounting.claims import gdp_clt
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import CellPoisson, Population
from rawls.algorithms.core.method import Task
from rawls.algorithms.dp_is_sgd import DpIsSgd
from rawls.algorithms.dpsgd import DpSgd
from rawls.analysis.read.papers_numbers import agreement, reported
from rawls.runners.config.compose import compose, resolve
from rawls.runners.training.setup import prepare_run

# CelebA's training groups, and the rate of its code: 10,000 steps an epoch.
CELEBA = Task(
    population=Population((71_629, 66_874, 22_880, 1_387)), batch_size=16, steps=300_000, steps_per_epoch=10_000,
    given_rate=1e-4,
)  # fmt: skip
TINY = Task(population=Population((600, 90, 10)), batch_size=60, steps=20, steps_per_epoch=12)


def planned(method: DpIsSgd | DpSgd, noise: float, task: Task = CELEBA) -> Plan:
    asked: dict[str, Any] = {"neighbouring": method.neighbouring, "accountant": "rdp", "search": "tight"}
    budget = Budget(epsilon=None, noise_multiplier=noise, delta=1 / (2 * task.population.total), **asked)
    return method.plan(task, budget)


def test_a_record_of_a_group_is_drawn_at_p_over_m_times_its_share() -> None:
    """p / (m q_g), not the printed p / m q_g; together they are the mean rate."""
    total, sizes = CELEBA.population.total, np.array(CELEBA.population.sizes)
    rates = DpIsSgd().rates(CELEBA)
    assert rates == pytest.approx(1e-4 / (4 * sizes / total))
    assert (np.array(rates) * sizes).sum() == pytest.approx(1e-4 * total)
    assert max(rates) / 1e-4 == pytest.approx(29.3385, abs=5e-5)
    assert DpIsSgd().divisor(CELEBA) == pytest.approx(16)


def test_a_rate_above_one_is_capped_here_and_refused_by_the_law() -> None:
    """60 / (3 · 10) = 2 for the smallest group: it is drawn whole, and the divisor says so."""
    assert DpIsSgd().rates(TINY) == pytest.approx((20 / 600, 20 / 90, 1.0))
    assert DpIsSgd().divisor(TINY) == pytest.approx(20 + 20 + 10)
    given = replace(TINY, given_rate=0.1, batch_size=35)
    assert DpIsSgd().rates(given) == pytest.approx((70 / 3 / 600, 70 / 3 / 90, 1.0))
    assert DpIsSgd().divisor(given) == pytest.approx(35 * (70 / 3 * 2 + 10) / 70)
    with pytest.raises(ValueError, match=r"a Poisson rate lies in \[0, 1\], but it is 2\.0"):
        CellPoisson(TINY.population, (0.1, 0.1, 2.0)).sampling_of(2)


def test_without_a_rate_the_batch_decides() -> None:
    task = replace(CELEBA, given_rate=None)
    assert DpIsSgd().rates(task) == pytest.approx([16 / (4 * size) for size in CELEBA.population.sizes])
    uniform = DpSgd(sampling="poisson")
    law = uniform.gradient_release(task, planned(uniform, 1.0, task), {}).law
    assert law.to_dict() == {"law": "uniform_poisson", "rate": 16 / CELEBA.population.total}


@pytest.mark.parametrize("noise", [1.0, 2.0, 3.0, 5.0, 10.0])
def test_the_claim_has_the_digits_of_figure_4_and_the_proof_more(noise: float) -> None:
    plan = planned(DpIsSgd(), noise)
    printed = reported("wysiwyg", "calibration").set_index(["method", "column"])["printed"]
    claim = plan.claim
    assert claim is not None and claim.epsilon is not None
    assert agreement(claim.epsilon, printed["DP-IS-SGD", f"celeba_hair/{noise:g}/epsilon"]) == "equal"
    assert claim.epsilon < plan.epsilon


@pytest.mark.parametrize("noise", [0.35, 0.4, 0.5, 1.0, 5.0])
def test_dpsgd_claims_by_the_same_rule_where_it_is_asked_to(noise: float) -> None:
    plan = planned(DpSgd(sampling="poisson"), noise)
    assert plan.claim is None
    claim = plan.claiming_gdp().claim
    printed = reported("wysiwyg", "calibration").set_index(["method", "column"])["printed"]
    assert claim is not None and claim.epsilon is not None
    assert agreement(claim.epsilon, printed["DP-SGD", f"celeba_hair/{noise:g}/epsilon"]) == "equal"
    own = gdp_clt(rate=1e-4, noise_multiplier=noise, steps=300_000, delta=1 / (2 * 162_770))
    assert claim == own


def test_the_rule_is_refused_for_rows_that_no_coin_draws() -> None:
    plan = planned(DpSgd(), 5.0, replace(CELEBA, given_rate=None))
    with pytest.raises(ValueError, match=r"drawn by uniform_without_replacement: choose Poisson sampling"):
        plan.claiming_gdp()


@pytest.mark.parametrize(
    ("dataset", "epochs", "steps", "batch"),
    [("celeba_hair", 30, 300_000, 16), ("utkface", 100, 100_000, 17), ("inat", 20, 200_000, 55)],
)
def test_recipes_of_private_methods_have_the_printed_epsilons(
    dataset: str, epochs: int, steps: int, batch: int
) -> None:
    """At paper scale, by the datasets' own group sizes and nothing else said."""
    printed = reported("wysiwyg", "calibration").set_index(["method", "column"])["printed"]
    rows = [(method, *column.split("/")[:2], said) for (method, column), said in printed.items()]
    rows = [(method, noise, said) for method, of, noise, said in rows if of == dataset]
    assert len(rows) >= 8
    for method, noise, said in rows:
        asked = {"dataset": dataset, "scale": "paper", "schedule.epochs": epochs, "privacy.noise_multiplier": noise}
        asked |= {"algorithm": {"DP-SGD": "dpsgd", "DP-IS-SGD": "dp_is_sgd"}[method], "privacy": "none"}
        asked |= {"privacy.claim": "gdp_clt", "schedule.plan_only": "true"}
        prepared = prepare_run(resolve(compose([f"{key}={value}" for key, value in asked.items()])))
        assert (prepared.task.steps, prepared.task.batch_size) == (steps, batch)
        assert prepared.plan is not None and prepared.plan.claim is not None
        epsilon = prepared.plan.claim.epsilon
        assert epsilon is not None and agreement(epsilon, said) == "equal", (method, noise)
