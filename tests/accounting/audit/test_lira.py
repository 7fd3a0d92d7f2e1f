"""LiRA against a naive loop and scipy's normals, areas against scikit-learn's, allowed rates by definition."""

import math
import statistics
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from rawls.accounting.audit.lira import (
    Centre,
    Variant,
    largest_auroc,
    largest_tpr,
    leave_one_out,
    likelihoods,
    roc,
    sureness,
)
from rawls.accounting.events import Neighbouring

EXCHANGED, ONE_MORE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_REMOVE


def test_how_sure_a_model_is() -> None:
    logits = np.random.default_rng(0).normal(size=(6, 4)) * 3
    labels = np.array([0, 3, 1, 2, 0, 1])
    assert sureness(logits, labels, "logit").tolist() == [logits[row, label] for row, label in enumerate(labels)]
    p = np.exp(log_softmax(logits, 1))[range(6), labels]
    np.testing.assert_allclose(sureness(logits, labels, "scaled"), np.log(p) - np.log(1 - p))
    assert sureness([[1e3, 0.0]], [0], "scaled").tolist() == [1e3]  # where 1 - p is 0 in floating point


def naive(
    target: np.ndarray, shadows: np.ndarray, inside: np.ndarray, variant: Variant, centre: Centre, few: int
) -> list[float]:
    """One row after another, densities by scipy."""
    middle: Callable[[list[float]], float] = statistics.median if centre == "median" else statistics.fmean
    sides = [
        [[value for value, there in zip(column, on, strict=True) if there == side and math.isfinite(value)]
         for column, on in zip(shadows.T, inside.T, strict=True)]
        for side in (True, False)
    ]  # fmt: skip
    found = []
    for row in range(shadows.shape[1]):
        densities = []
        for side in sides:
            own = side[row]
            if not own:
                densities.append((math.nan, math.nan))
                continue
            spread = [value - middle(other) for other in side for value in other]
            freedom = sum(len(other) - 1 for other in side if other)
            pooled = math.sqrt(sum(value**2 for value in spread) / freedom)
            std = math.sqrt(sum((v - middle(own)) ** 2 for v in own) / (len(own) - 1)) if len(own) >= few else pooled
            densities.append((float(middle(own)), std))
        (mean_in, std_in), (mean_out, std_out) = densities
        if variant == "offline":
            found.append((target[row] - mean_out) / std_out)
        else:
            within, without = (mean_in, std_in), (mean_out, std_out)
            found.append(stats.norm.logpdf(target[row], *within) - stats.norm.logpdf(target[row], *without))
    return found


@pytest.mark.parametrize(("variant", "centre"), [*product(["online", "offline"], ["median", "mean"])])
@pytest.mark.parametrize("few", [2, 4, 100])
def test_likelihoods_are_those_of_a_naive_loop(variant: Variant, centre: Centre, few: int) -> None:
    """With values that are no numbers, a row that no shadow trained on, and one that all did."""
    rng = np.random.default_rng(few)
    shadows, target = rng.normal(size=(9, 7)), rng.normal(size=7)
    inside = rng.random((9, 7)) < 0.5
    inside[:, 5], inside[:, 6] = False, True
    shadows[2, 1], shadows[3, 1], target[4] = math.nan, math.inf, math.nan
    found = likelihoods(target, shadows, inside, variant=variant, centre=centre, few=few)
    np.testing.assert_allclose(found, naive(target, shadows, inside, variant, centre, few), rtol=1e-9)
    assert np.isnan(found[[4, 6]]).all() and np.isnan(found[5]) == (variant == "online")


def test_offline_orders_rows_as_the_papers_one_sided_test() -> None:
    """1 - P[Z > value], Z of the normal distribution without the row."""
    rng = np.random.default_rng(1)
    shadows, target = rng.normal(size=(40, 12)), rng.normal(size=12)
    found = likelihoods(target, shadows, np.zeros_like(shadows), variant="offline", centre="mean")
    tail = stats.norm.sf(target, shadows.mean(0), shadows.std(0, ddof=1))
    np.testing.assert_allclose(stats.norm.cdf(found), 1 - tail)


def test_each_run_is_attacked_by_all_others_and_not_by_itself() -> None:
    rng = np.random.default_rng(2)
    values, inside = rng.normal(size=(6, 5)), rng.random((6, 5)) < 0.5
    found = leave_one_out(values, inside)
    for run in range(6):
        rest = [other for other in range(6) if other != run]
        np.testing.assert_array_equal(found[run], likelihoods(values[run], values[rest], inside[rest]))
    with pytest.raises(ValueError, match="there are 1 runs"):
        leave_one_out(values[:1], inside[:1])


def planted(leak: float, *, runs: int = 24, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Values of runs on random halves: a level of each row's own, noise, and so much more if the run trained on it."""
    rng = np.random.default_rng(3)
    inside = rng.random((runs, rows)) < 0.5
    return rng.normal(scale=5, size=rows) + rng.normal(size=(runs, rows)) + leak * inside, inside


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_a_leak_is_found_and_its_absence_too(variant: Variant) -> None:
    """24 runs on 300 rows, seed 3: 7,200 memberships, so an AUROC of 1/2 has a standard error of 0.0068.

    Without a leak it lies within 0.03 of 1/2, in the bounds of every epsilon; a leak of six standard deviations of the
    noise is found (0.99), and so is one of a half (0.55), though rows differ by ten times as much. The value itself,
    without shadows, finds little of it.
    """
    areas = {}
    for leak in (0.0, 0.5, 6.0):
        values, inside = planted(leak)
        areas[leak] = roc(leave_one_out(values, inside, variant=variant), inside).auroc
    assert abs(areas[0.0] - 0.5) < 0.03 < 0.05 < areas[0.5] - 0.5 and areas[6.0] > 0.99
    assert roc(*planted(0.5)).auroc < 0.53


def test_an_attack_that_sees_the_target_among_its_shadows_is_rejected_by_the_same_bounds() -> None:
    """What leaves a run in finds memberships that no model remembers."""
    values, inside = planted(0.0, runs=6)
    cheated = np.stack([likelihoods(of_run, values, inside, few=100) for of_run in values])
    assert roc(cheated, inside).auroc > 0.53 + 0.1


def test_areas_and_curves_are_scikit_learns_ties_included() -> None:
    rng = np.random.default_rng(4)
    scores, inside = rng.integers(0, 20, 500) + 0.0, rng.random(500) < 0.3
    found = roc(scores + 2 * inside, inside)
    assert found.auroc == pytest.approx(roc_auc_score(inside, scores + 2 * inside))
    assert (found.members, found.others, found.lost) == (inside.sum(), (~inside).sum(), 0)
    for fpr in (0.0, 0.01, 0.2, 1.0):
        best = max(
            np.mean(scores[inside] + 2 >= threshold)
            for threshold in [*np.unique(scores + 2 * inside), math.inf]
            if np.mean(scores[~inside] >= threshold) <= fpr
        )
        tpr, low, high = found.tpr_at(fpr, 0.95)
        assert tpr == pytest.approx(best) and low <= tpr <= high


def test_rows_without_a_score_are_not_counted() -> None:
    found = roc([math.nan, 3.0, 2.0, math.nan, 1.0], [True, True, False, False, False])
    assert (found.auroc, found.members, found.others, found.lost) == (1.0, 1, 2, 2)
    nothing = roc([math.nan], [True])
    assert math.isnan(nothing.auroc) and (nothing.members, nothing.others, nothing.lost) == (0, 0, 1)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 3.0, 900.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_what_epsilon_allows_is_by_definition(epsilon: float, delta: float) -> None:
    """The largest rate with TPR <= e^eps FPR + delta and 1 - FPR <= e^eps (1 - TPR) + delta; found on a grid."""
    rates, grid = np.linspace(0, 1, 41), np.linspace(0, 1, 20_001)
    for rate, allowed in zip(rates, largest_tpr(rates, epsilon, delta, EXCHANGED), strict=True):
        factor = math.exp(min(epsilon, 700))
        held = (grid <= factor * rate + delta + 1e-12) & (1 - rate <= factor * (1 - grid) + delta + 1e-12)
        assert allowed == pytest.approx(grid[held].max(), abs=1e-4)


def test_halves_are_two_records_apart_where_epsilon_is_for_one_more_or_less() -> None:
    """By group privacy without delta: the curve of twice the epsilon lies above, as far as its kink; the rate rises."""
    rates = np.geomspace(1e-4, 1, 50)
    once, twice = largest_tpr(rates, 1.0, 0.0, EXCHANGED), largest_tpr(rates, 1.0, 0.0, ONE_MORE)
    at_most = largest_tpr(rates, 2.0, 0.0, EXCHANGED)
    assert (once < twice)[rates < 0.99].all() and (twice <= at_most + 1e-12).all()
    np.testing.assert_allclose(twice[rates < 0.05], at_most[rates < 0.05])


def test_the_area_that_epsilon_allows() -> None:
    """Of pure epsilon in closed form: two lines that meet at FPR 1 / (1 + e^eps)."""
    kink = 1 / (1 + math.e)
    area = kink * (1 - kink) / 2 + (1 - kink) * (1 - kink + 1) / 2
    assert largest_auroc(1.0, 0.0, EXCHANGED) == pytest.approx(area, abs=1e-6)
    assert largest_auroc(0.0, 0.0, EXCHANGED) == pytest.approx(0.5)
    assert largest_auroc(900.0, 0.0, ONE_MORE) == pytest.approx(1.0)


def test_randomised_response_attacked_over_its_outputs_stays_below_what_epsilon_allows() -> None:
    """20,000 coins, seed 5: an attack on the right epsilon touches the allowed curve, on half of it it passes it."""
    rng = np.random.default_rng(5)
    inside = rng.random(20_000) < 0.5
    told = np.where(rng.random(20_000) < 1 / (1 + math.exp(-2.0)), inside, ~inside)
    _, low, high = roc(told, inside).tpr_at(0.13, 0.999)
    allowed, of_half = (float(largest_tpr(0.13, epsilon, 0.0, EXCHANGED)) for epsilon in (2.0, 1.0))
    assert low <= allowed <= 1.1 * high and low > of_half
