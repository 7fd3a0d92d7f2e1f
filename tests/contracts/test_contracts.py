"""What must hold for every method in conf/algorithm: a new YAML is under all contracts without a word here.

Each contract's seeds, n, accept and reject bounds stand in its module; test_twins.py shows what each rejects. Recipes
are checked as written, and with each of their choices made otherwise on fewer steps.
"""

from functools import lru_cache
from typing import Any

import pytest

from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.solver import Solver
from rawls.runners.audit.canary_game import audit
from rawls.runners.audit.contracts.events import check_events, check_target
from rawls.runners.audit.contracts.law import check_law
from rawls.runners.audit.contracts.neighbours import check_neighbours
from rawls.runners.audit.contracts.noise import SCALE_WITHIN, check_noise
from rawls.runners.audit.contracts.saving import check_alone, check_resume, mixed_fleet
from rawls.runners.audit.problem import ALGORITHMS, case_of, cases
from rawls.runners.audit.rejection import HALF, caught, twins_of

AS_WRITTEN = [name for name, case in cases().items() if case.as_written]
PRIVATE = [name for name in AS_WRITTEN if cases()[name].private]
SOLVERS = [name for name in ALGORITHMS if isinstance(case_of(name).method, Solver)]
OTHERWISE = [name for name, case in cases().items() if not case.as_written and case.private]

every_method = pytest.mark.parametrize("name", AS_WRITTEN)
every_private_method = pytest.mark.parametrize("name", PRIVATE)
every_choice = pytest.mark.parametrize("name", OTHERWISE)


@every_private_method
def test_neighbours_differ_by_no_more_than_declared(name: str) -> None:
    assert check_neighbours(cases()[name]) >= 1_500


@every_choice
def test_neighbours_differ_by_no_more_than_declared_under_every_choice(name: str) -> None:
    assert check_neighbours(cases()[name], repeats=1) >= 100


@every_private_method
def test_noise_is_as_declared_and_never_repeated(name: str) -> None:
    """And 5 % less of it would be seen."""
    scales = check_noise(cases()[name])
    assert scales and all(abs(0.95 * scale - 1) > SCALE_WITHIN for scale in scales.values())


@pytest.mark.parametrize("name", PRIVATE + OTHERWISE)
def test_the_ledger_charges_what_its_lines_say(name: str) -> None:
    check_events(cases()[name])


@every_private_method
def test_the_plan_spends_its_budget(name: str) -> None:
    check_target(cases()[name])


@pytest.mark.parametrize("name", PRIVATE + OTHERWISE)
def test_rows_are_drawn_by_the_declared_law(name: str) -> None:
    check_law(cases()[name])


@every_method
def test_a_resumed_run_ends_as_one_that_never_stopped(name: str) -> None:
    check_resume(cases()[name])


@lru_cache(maxsize=2)
def mixed(private: bool) -> tuple[list[str], FleetStep[Any]]:
    names = [name for name in AS_WRITTEN if cases()[name].private is private]
    return names, mixed_fleet([cases()[name] for name in names])


@every_method
def test_a_run_is_the_same_alone_and_among_other_methods(name: str) -> None:
    names, together = mixed(cases()[name].private)
    run = names.index(name)
    check_alone(cases()[name], together, run, f"mixed {run}", seed=run)


@every_private_method
def test_an_audit_stays_below_what_is_proven_and_half_the_noise_is_caught(name: str) -> None:
    """Full batch, 200 runs a side, confidence 99.9 %. Where the Gaussian-DP bound is exact, the game sees it."""
    found, proven = audit(cases()[name])
    assert found.lower_bound <= proven
    twin = caught(HALF, *twins_of(name)[HALF])
    if found.bound == "gaussian":
        assert found.lower_bound > 0 and twin.caught_by == "canary game"
    assert twin.caught_by


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_is_charged_and_noised_as_it_says(name: str) -> None:
    case = case_of(name)
    check_events(case)
    check_target(case)
    assert all(abs(0.95 * scale - 1) > SCALE_WITHIN for scale in check_noise(case).values())


@pytest.mark.nightly  # minutes: a solver's runs are trained one by one
@pytest.mark.parametrize("name", SOLVERS)
def test_an_audit_of_a_solver_stays_below_what_is_proven_and_half_the_noise_is_caught(name: str) -> None:
    found, proven = audit(case_of(name), runs=100)
    assert found.lower_bound <= proven
    assert caught(HALF, *twins_of(name)[HALF]).caught_by
