"""How far what a model does on its training data may lie from what it does on others: WYSIWYG's bounds, and gaps.

A training procedure is TV-stable by d if the distributions of its models on neighbouring data sets of one size lie
within d in total variation. Then no function of an example and the model with values in [0, 1] has means over training
and fresh examples that differ by more than d, in expectation over data sets and training (Theorem 2.5). The same holds
within a group, and with the ε of its members alone: exchange one of them for a fresh member, and one record differs.

`stability` is Proposition 2.6, tight for whatever is (ε, δ)-DP: randomised response, with probability δ of telling all,
reaches it. Definition 2.3 has neighbours that differ by one exchanged record; for an ε of adding or removing one, as
Opacus and our Poisson-sampled methods account it, an exchange is two steps, and the bound twice as large (`bound`). The
paper leaves that out.
"""

import math


def stability(epsilon: float, delta: float = 0.0) -> float:
    """(e^ε − 1 + 2δ) / (e^ε + 1): the largest total variation that (ε, δ)-DP allows (Proposition 2.6)."""
    small = math.exp(-epsilon)  # e^ε overflows
    return (1 - small + 2 * delta * small) / (1 + small)


def easy_stability(epsilon: float, delta: float = 0.0) -> float:
    """e^ε − 1 + δ (Eq. 2): says nothing from ε = ln 2 on."""
    return math.expm1(epsilon) + delta if epsilon < 700 else math.inf


def by_mutual_information(epsilon: float) -> float:
    """ε: what Steinke and Zakynthinou (2020) give, whom the paper names. Their gap of a function in [0, 1] is at most
    sqrt(2 CMI / n), and the conditional mutual information of ε-DP is at most n ε² / 2. Says nothing from ε = 1 on."""
    return epsilon


def bound(epsilon: float, delta: float, neighbouring: str) -> float:
    """The largest gap between training and fresh examples of any function in [0, 1], at most 1."""
    hops = 2 if neighbouring == "add_remove" else 1
    return min(1.0, hops * stability(epsilon, delta))
