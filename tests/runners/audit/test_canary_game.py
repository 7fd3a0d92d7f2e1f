"""The canary game's scores are the likelihood ratios that they should be, and its bounds hold."""

from dataclasses import replace

import numpy as np
import pytest

from rawls.accounting.mechanism.sampling import OneGroup
from rawls.algorithms.dpsgd import DpSgd
from rawls.runners.audit import canary_game
from rawls.runners.audit.canary_game import MODEL, SUMS, gate_cell, play, scores_of
from rawls.runners.audit.problem import Canary, Case, case_of

RUNS = 250


def sampled(name: str, **changed: object) -> Case:
    return replace(case_of(name), epsilon=8.0, steps=1, steps_per_epoch=1, **changed)  # type: ignore[arg-type]


def best(case: Case) -> Canary:
    candidates = case.canaries(case.smallest_cell)
    tried = scores_of(case, candidates, "records", second=False, steps=case.steps)
    return candidates[int(np.argmax(tried.exposures))]


def mean_ratio(case: Case) -> tuple[float, float]:
    """The mean likelihood of the other data set over the one that was used, and its standard error."""
    ratios = scores_of(case, [best(case)] * RUNS, "test", second=False, steps=case.steps).by[SUMS]
    likelihood = np.exp(-ratios)
    return float(likelihood.mean()), float(likelihood.std() / RUNS**0.5)


@pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])
def test_scores_of_sampled_rows_are_likelihood_ratios(sampling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """250 runs that draw 40 of 102 rows: the mean of p(other) / p(own) is 1, within 4.5 standard errors, for the ratio
    of what an attacker sees who does not know whether the record was drawn. One who takes it as drawn: above 1.5."""
    case = sampled("dpsgd", method=DpSgd(sampling=sampling), batch_size=40)  # type: ignore[arg-type]
    mean, error = mean_ratio(case)
    assert abs(mean - 1) < 4.5 * error and error < 0.2
    monkeypatch.setattr(canary_game, "surely", lambda _: True)
    monkeypatch.setattr(canary_game, "_is_sure", lambda *_: False)
    mean, _ = mean_ratio(case)
    assert mean > 1.5


def test_the_gate_is_where_bounds_are_exact() -> None:
    assert not scores_of(sampled("dpsgd"), sampled("dpsgd").canaries(2)[:1], "test", second=False, steps=1).sure
    wide = case_of("idp_sgd").full_batch(2)
    cell = gate_cell(wide)
    played = scores_of(wide, wide.canaries(cell)[:1], "test", second=False, steps=2)
    assert played.sure and played.gaussian


def test_both_views_show_something_at_full_batch_and_no_more_than_is_proven() -> None:
    """150 runs a side of DP-SGD at epsilon 8, confidence 99 %; the final model is made of what was published."""
    case = case_of("dpsgd").full_batch(2)
    game = play(case, case.smallest_cell, runs=150, pilots=60, confidence=0.99)
    shown = {proven.view: proven for proven in game.proven}
    assert set(shown) == {SUMS, MODEL} and {proven.bound for proven in shown.values()} == {"gaussian"}
    assert all(0 < proven.lower_bound < 8 for proven in shown.values())
    assert game.claim is None


def test_what_is_drawn_at_random_is_bounded_as_any_mechanism() -> None:
    game = play(sampled("dp_is_sgd"), 2, runs=20, pilots=10, confidence=0.99)
    assert {proven.bound for proven in game.proven} == {"any"}
    assert game.claim is not None and game.claim.rule == "gdp_clt"


def test_a_group_that_is_drawn_by_chance_is_taken_as_drawn_where_it_is_drawn_whole() -> None:
    """As the accountant does: in a run on whole groups the record is in every step."""
    case = case_of("azb").full_batch(2)
    release = case.method.gradient_release(case.task, case.plan, {"weights": np.ones(3) / 3})  # type: ignore[attr-defined]
    assert isinstance(release.law, OneGroup) and release.law.batches[2] == case.sizes[2]
    played = scores_of(case, [best(case)], "test", second=False, steps=2)
    assert played.sure and played.exposures[0] > 0
