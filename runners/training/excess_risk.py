"""How far a linear model's worst group is from the best there is, where that is known (datasets/core/known_risk.py).

Excess worst-group risk, of the population and on the training rows, as Zhou and Bassily's theorems bound it: parameters
are brought into the ball first, which may follow any release. What has no closed form is solved for, and certified: for
weights on the groups, convexity bounds what any parameters of the ball come to from below.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from scipy.optimize import minimize, nnls
from torch import Tensor

from rawls.datasets.core.known_risk import KnownRisk, Risks
from rawls.datasets.core.splits import Rows
from rawls.models.margin_losses import MARGIN_LOSSES
from rawls.models.objectives import OBJECTIVES

ACCURACY = 1e-6
AT_A_KINK = 1e-5
NEAR = (1e-10, 1e-8, 1e-6, 1e-4)  # the worst group's risk, by so much: which groups decide

Array = np.ndarray


def excess_risk(params: Tensor, known: KnownRisk, loss: str, rows: Rows) -> dict[str, float]:
    """What the summary says of a run; at_zero is what knows nothing of the data.

    Args:
        params: [2 (input + 1)] as a linear layer has them: weights, then biases.
    """
    w = params.detach().cpu().numpy().astype(np.float64)
    w *= min(1.0, known.radius / max(float(np.linalg.norm(w)), 1e-300))
    both = np.hstack([w[:-2].reshape(2, -1), w[-2:, None]])
    u, sample = both[1] - both[0], known.sample(rows)
    optimum = population_optimum(known, loss)
    return {
        "excess_population": worst(u, known.population, loss) - optimum,
        "excess_empirical": worst(u, sample, loss) - least_worst(sample, loss, known.radius),
        "excess_at_zero": worst(0 * u, known.population, loss) - optimum,
    }


@lru_cache(maxsize=64)
def population_optimum(known: KnownRisk, loss: str) -> float:
    """The least worst risk of the population."""
    return least_worst(known.population, loss, known.radius) if known.optimum is None else known.optimum


def worst(u: Array, risks: Risks, loss: str) -> float:
    """The largest risk of a group."""
    return float(values_and_slopes(u, risks, loss)[0].max())


def values_and_slopes(u: Array, risks: Risks, loss: str) -> tuple[Array, Array]:
    """Each group's risk, and its gradient [group, input + 1]."""
    margins = torch.from_numpy(risks.vectors @ u)
    logits = torch.stack([-margins / 2, margins / 2], 1)
    losses, gradients = OBJECTIVES[loss].losses_and_gradients(logits, torch.ones(len(margins), dtype=torch.int64))
    offset = OBJECTIVES[loss].losses(torch.zeros(2, 2), torch.tensor([1, 3])).numpy()
    values = risks.chances @ losses.numpy() + (offset[1] - offset[0]) * risks.shifted
    return values, (risks.chances * gradients[:, 1].numpy()) @ risks.vectors


def least_worst(risks: Risks, loss: str, radius: float) -> float:
    """The least that the largest risk of a group comes to in the ball, certified to ACCURACY.

    Raises:
        ValueError: the certificate does not reach that far.
    """
    reach = math.sqrt(2) * radius
    u = _solved(risks, loss, reach)
    value, bound = worst(u, risks, loss), lower_bound(u, risks, loss, reach)
    if value - bound > ACCURACY:
        raise ValueError(f"the least worst risk is between {bound:.9g} and {value:.9g}: it could not be certified")
    return value


def lower_bound(u: Array, risks: Risks, loss: str, reach: float) -> float:
    """Below what every parameter of the ball comes to.

    Under weights v, the mean risk lies above any tangent at u, which is lowest at the end of the ball against its
    slope g: v L(u) - <g, u> - reach |g|. Of all v, and of all slopes z at a kink, those that balance each other.
    """
    values, slopes = values_and_slopes(u, risks, loss)
    length = float(np.linalg.norm(u))
    outward = u / max(length, 1e-300) * (length > reach * (1 - 1e-6))  # inside, slopes balance without the ball
    steepest, past = OBJECTIVES[loss].slope / math.sqrt(2), _past_a_kink(risks.vectors @ u, loss)
    bent = np.flatnonzero(np.abs(past) < AT_A_KINK)
    vectors, chances, past = risks.vectors[bent], steepest * risks.chances[:, bent], past[bent]
    slopes = slopes - chances * np.sign(past) @ vectors  # what the kinks add is up to z
    best = -math.inf
    for near in NEAR:
        groups = np.flatnonzero(values >= values.max() - near)
        v, z = _balanced(slopes[groups], vectors, chances[groups], outward)
        slope = v @ slopes[groups] + z @ vectors
        tangent = v @ values[groups] - v @ chances[groups] @ np.abs(past) + z @ past
        best = max(best, float(tangent - slope @ u - reach * np.linalg.norm(slope)))
    return best


def _past_a_kink(margins: Array, loss: str) -> Array:
    """How far; infinity where the loss has none."""
    kink = MARGIN_LOSSES[loss].kink
    return np.full(len(margins), math.inf) if kink is None else margins - kink


def _balanced(slopes: Array, vectors: Array, chances: Array, outward: Array) -> tuple[Array, Array]:
    """Weights v of the groups, and |z| <= v chances, for which v slopes + z vectors is about a step inward.

    By non-negative least squares over v, the step, both parts of z, and what z leaves of its limit.
    """
    groups, kinks = chances.shape
    balance = np.hstack([slopes.T, outward[:, None], vectors.T, -vectors.T, np.zeros((len(outward), kinks))])
    one = np.concatenate([np.ones(groups), np.zeros(1 + 3 * kinks)])
    limits = np.hstack([-chances.T, np.zeros((kinks, 1)), *[np.eye(kinks)] * 3])
    exact = 1e3  # equations that hold
    wanted = np.concatenate([0 * outward, [exact], np.zeros(kinks)])
    found, _ = nnls(np.vstack([balance, exact * one, exact * limits]), wanted)
    v = found[:groups] / found[:groups].sum()
    up, down = found[groups + 1 : groups + 1 + 2 * kinks].reshape(2, kinks)
    return v, np.clip(up - down, -v @ chances, v @ chances)


def _solved(risks: Risks, loss: str, reach: float) -> Array:
    """Parameters [input + 1] of the ball that are about the best.

    Of x = (parameters, losses of atoms, t): t is least that no risk is above. Only a loss with a kink has variables of
    its own, above both of its straight lines.
    """
    axes = _axes(risks, loss)
    within = Risks(vectors=risks.vectors @ axes, chances=risks.chances, shifted=risks.shifted)
    size, kink, steepest = axes.shape[1], MARGIN_LOSSES[loss].kink, MARGIN_LOSSES[loss].steepest
    bent = 0 if kink is None else len(risks.vectors)

    def below_t(x: Array) -> Array:
        values = risks.chances @ x[size:-1] if bent else values_and_slopes(x[:size], within, loss)[0]
        return np.asarray(x[-1] - values)

    def below_t_slopes(x: Array) -> Array:
        of_u = np.zeros((len(risks.chances), size)) if bent else values_and_slopes(x[:size], within, loss)[1]
        return np.hstack([-of_u, -risks.chances[:, :bent], np.ones((len(risks.chances), 1))])

    both = np.vstack([sign * steepest * within.vectors[:bent] for sign in (-1, 1)])
    lines = np.hstack([both, np.vstack([np.eye(bent)] * 2), np.zeros((2 * bent, 1))])
    ends = np.repeat([-1.0, 1.0], bent) * steepest * (kink or 0.0)
    _, slopes = values_and_slopes(np.zeros(size), within, loss)
    u = -slopes.mean(0) * reach / 2 / max(float(np.linalg.norm(slopes.mean(0))), 1e-300)
    losses = steepest * np.abs(within.vectors[:bent] @ u - (kink or 0.0))
    rest = np.zeros(bent + 1)
    found = minimize(
        lambda x: x[-1],
        np.concatenate([u, losses, [worst(u, within, loss)]]),
        jac=lambda x: np.append(0 * x[:-1], 1.0),
        constraints=[
            {"type": "ineq", "fun": below_t, "jac": below_t_slopes},
            *([{"type": "ineq", "fun": lambda x: lines @ x - ends, "jac": lambda x: lines}] if bent else []),
            {
                "type": "ineq",
                "fun": lambda x: (reach**2 - x[:size] @ x[:size]) / 2,
                "jac": lambda x: np.concatenate([-x[:size], rest]),
            },
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    ).x[:size]
    return np.asarray(axes @ (found * min(1.0, reach / max(float(np.linalg.norm(found)), 1e-300))))


def _axes(risks: Risks, loss: str) -> Array:
    """Orthonormal axes in whose span a best point lies: that of the means, where the loss is linear."""
    if not loss.endswith("linear"):
        return np.eye(risks.vectors.shape[1])
    axes, sizes, _ = np.linalg.svd((risks.chances @ risks.vectors).T, full_matrices=False)
    return np.asarray(axes[:, sizes > 1e-12 * max(sizes[0], 1e-300)])
