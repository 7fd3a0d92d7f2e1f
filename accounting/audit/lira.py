"""Membership inference by the likelihood ratio (LiRA; Carlini et al. 2022): scores of shadow models in, ROC out.

Shadow runs train on random halves of the rows, so that each row is in about half of them. How sure a model is of a
row's label, when the row was and when it was not trained on, is taken for two normal distributions (`likelihoods`); the
target is asked which of them its own value comes from. Online: log N_in - log N_out. Offline, with the shadows alone
that did not train on the row: (value - centre_out) / std_out, which orders rows as the paper's one-sided test does.
`leave_one_out` makes each run the target of the others.

How sure a model is (`Sureness`): 'logit' is the raw logit of the label, as IDP-SGD's code has it (and so INO-SGD's
AUROCs); 'scaled' is log p - log(1 - p), the paper's. The centre is the median in both codes, the mean in the paper.

Readings and differences: with fewer than `FEW` shadows on a side, a row's own standard deviation says nothing, and that
of all rows about their own centres takes its place; the papers' code pools the values themselves, which mixes in how
rows differ. Values that are not numbers are no shadows; a row without a shadow on a side that is needed has no score,
and a row without a score is not counted.

`largest_tpr` is what (epsilon, delta) leaves to any attack at a false positive rate. Halves of equal sizes are
neighbours by exchange: where epsilon is for a record more or less, two steps lead from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from rawls.accounting.audit.bounds import clopper_pearson
from rawls.accounting.events import Neighbouring

Values = NDArray[np.float64]
Sureness = Literal["logit", "scaled"]
Variant = Literal["online", "offline"]
Centre = Literal["median", "mean"]

FEW = 16  # shadows on a side
SMALLEST_STD = 1e-12  # where all shadows agree


def sureness(logits: ArrayLike, labels: ArrayLike, kind: Sureness) -> Values:
    """How sure a model is of the labels, [row], by its logits [row, class]."""
    values, at = np.asarray(logits, dtype=np.float64), np.asarray(labels)[:, None]
    own = np.take_along_axis(values, at, 1)[:, 0]
    if kind == "logit":
        return own
    others = values.copy()
    np.put_along_axis(others, at, -np.inf, 1)
    with np.errstate(invalid="ignore"):
        return own - logsumexp(others, axis=1)  # log p - log(1 - p), which a sum of exponentials would round away


def likelihoods(
    target: ArrayLike,
    shadows: ArrayLike,
    inside: ArrayLike,
    *,
    variant: Variant = "online",
    centre: Centre = "median",
    few: int = FEW,
) -> Values:
    """How much likelier the target's value of each row is if the row was in, [row].

    Args:
        target: [row].
        shadows: [shadow, row].
        inside: [shadow, row], whether the shadow trained on the row.
        few: below so many shadows on a side, a row takes the standard deviation of all.
    """
    value, of_shadows, there = np.asarray(target, float), np.asarray(shadows, float), np.asarray(inside, bool)
    out_centre, out_std = _normal(np.where(there, np.nan, of_shadows), centre, few)
    with np.errstate(invalid="ignore"):
        beyond = (value - out_centre) / out_std
        if variant == "offline":
            return beyond
        in_centre, in_std = _normal(np.where(there, of_shadows, np.nan), centre, few)
        return (beyond**2 - ((value - in_centre) / in_std) ** 2) / 2 + np.log(out_std / in_std)


def leave_one_out(
    values: ArrayLike,
    inside: ArrayLike,
    *,
    variant: Variant = "online",
    centre: Centre = "median",
    few: int = FEW,
) -> Values:
    """`likelihoods` of each run, [run, row], with all others as its shadows."""
    of_runs, there = np.asarray(values, float), np.asarray(inside, bool)
    if len(of_runs) < 2:
        raise ValueError(f"a target needs the shadow of another run at least, but there are {len(of_runs)} runs")
    others = ~np.eye(len(of_runs), dtype=bool)
    return np.stack(
        [
            likelihoods(of_runs[run], of_runs[rest], there[rest], variant=variant, centre=centre, few=few)
            for run, rest in enumerate(others)
        ]
    )


def _normal(values: Values, centre: Centre, few: int) -> tuple[Values, Values]:
    """Centre and standard deviation of each column, over what is a number in it."""
    finite = np.isfinite(values)
    counts = finite.sum(0)
    rows = np.sort(np.where(finite, values, np.inf), 0)  # numbers first
    if centre == "mean":
        middle = np.where(finite, values, 0).sum(0) / np.maximum(counts, 1)
    else:
        lower, upper = np.maximum(counts - 1, 0) // 2, np.maximum(counts, 1) // 2
        picked = np.take_along_axis(rows, np.stack([lower, np.minimum(upper, len(rows) - 1)]), 0)
        middle = picked.mean(0)
    middle = np.where(counts, middle, np.nan)
    squares = np.where(finite, values - middle, 0.0) ** 2
    freedom = np.maximum(counts - 1, 0)
    pooled = np.sqrt(squares.sum() / freedom.sum()) if freedom.sum() else np.nan
    with np.errstate(invalid="ignore"):
        own = np.sqrt(squares.sum(0) / np.maximum(freedom, 1))
    return middle, np.maximum(np.where(counts >= max(few, 2), own, pooled), SMALLEST_STD)


@dataclass(frozen=True, kw_only=True)
class Roc:
    """How an attack does at every threshold: the rates at which rows that were in, and rows that were not, are claimed.

    Args:
        false_positives, true_positives: numbers of rows claimed, both from 0 to all, as the threshold falls.
        lost: rows without a score, which are not counted.
    """

    false_positives: NDArray[np.int64]
    true_positives: NDArray[np.int64]
    lost: int = 0

    @property
    def members(self) -> int:
        return int(self.true_positives[-1])

    @property
    def others(self) -> int:
        return int(self.false_positives[-1])

    @property
    def fpr(self) -> Values:
        return self.false_positives / max(self.others, 1)

    @property
    def tpr(self) -> Values:
        return self.true_positives / max(self.members, 1)

    @property
    def auroc(self) -> float:
        """The probability that a member's score is above another row's, ties counted half."""
        return float(np.trapezoid(self.tpr, self.fpr)) if self.members and self.others else float("nan")

    def tpr_at(self, fpr: float, confidence: float) -> tuple[float, float, float]:
        """The true positive rate at the lowest threshold whose false positive rate is no higher, and its interval.

        By Clopper and Pearson, as if memberships were independent: a run's are nearly, but the same row is asked in
        every run, and the threshold was chosen on the same scores. It says what is noise, and proves no bound.
        """
        place = int(np.searchsorted(self.fpr, fpr, side="right")) - 1
        right = int(self.true_positives[place])
        return right / max(self.members, 1), *clopper_pearson(right, max(self.members, 1), confidence)


def roc(scores: ArrayLike, inside: ArrayLike) -> Roc:
    """The curve of an attack that claims the rows with the highest scores; equal ones all at once."""
    values, there = np.ravel(np.asarray(scores, float)), np.ravel(np.asarray(inside, bool))
    known = ~np.isnan(values)
    values, there = values[known], there[known]
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1) if len(values) else np.zeros(0, np.int64)
    claimed = np.concatenate([[0], (ends + 1)]).astype(np.int64)
    right = np.concatenate([[0], np.cumsum(there[order])])[claimed]
    return Roc(false_positives=claimed - right, true_positives=right, lost=int((~known).sum()))


def largest_tpr(fpr: ArrayLike, epsilon: float, delta: float, neighbouring: Neighbouring) -> Values:
    """The largest true positive rate that (epsilon, delta)-DP leaves to an attack on halves, at false positive rates.

    min(e^eps FPR + delta, 1 - e^-eps (1 - delta - FPR)) for records that are exchanged (Kairouz, Oh, Viswanath 2015);
    for a record more or less, the same of the rate on the data set between, which has one record less.
    """
    rates = np.asarray(fpr, dtype=np.float64)
    for _ in range(2 if neighbouring is Neighbouring.ADD_REMOVE else 1):
        rates = np.minimum(_above(rates, epsilon, delta), 1.0)
    return rates


def largest_auroc(epsilon: float, delta: float, neighbouring: Neighbouring) -> float:
    """The area under `largest_tpr`."""
    fine = np.concatenate([[0.0], np.geomspace(1e-12, 1, 20_001)])
    return float(np.trapezoid(largest_tpr(fine, epsilon, delta, neighbouring), fine))


def _above(rates: Values, epsilon: float, delta: float) -> Values:
    factor = np.exp(min(epsilon, 700.0))
    return np.minimum(factor * rates + delta, 1 - (1 - delta - rates) / factor)
