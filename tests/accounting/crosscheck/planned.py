"""What is planned from accountants, held against naive code: calibration, owners, equal groups, dominance, trees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from rawls.accounting.accountants import epsilon
from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.accounting.calibration.dominance import NEGLIGIBLE, dominated_multipliers
from rawls.accounting.calibration.equalise_groups import SamplingName, noise_multipliers
from rawls.accounting.calibration.find_noise import OPACUS_TOLERANCE, Search, calibrate
from rawls.accounting.events import (
    Accountant,
    Everyone,
    GaussianEvent,
    Neighbouring,
    Poisson,
    Sampling,
    joint_multiplier,
)
from rawls.accounting.mechanism.tree import Tree
from rawls.accounting.owner_budgets import OwnerBudgets, OwnerPlan, plan_both, plan_rates, plan_thresholds
from tests.accounting.crosscheck.integration import Profile, Step, delta_at
from tests.accounting.crosscheck.settings import ADD, REPLACE

ROUNDING = 1e-6


@dataclass(frozen=True)
class Calibrated:
    """A run whose noise is searched for: steps of a law, and two unsampled releases at 25 times the noise."""

    law: Sampling
    steps: int
    neighbouring: Neighbouring
    accountant: Accountant
    search: Search
    target: float
    delta: float

    @property
    def name(self) -> str:
        return f"{self.steps} x {self.law}, {self.accountant}, {self.search}, epsilon {self.target}, delta {self.delta}"

    def events(self, noise: float) -> list[GaussianEvent]:
        return [GaussianEvent(self.law, noise, self.steps), GaussianEvent(Everyone(), 25 * noise, 2)]

    def cost(self, noise: float) -> float:
        return epsilon(
            self.events(noise), delta=self.delta, neighbouring=self.neighbouring, accountant=self.accountant
        ).epsilon


def calibrated() -> Iterator[Calibrated]:
    searches: tuple[Search, ...] = ("tight", "opacus")
    for rate, steps, target, delta, search in product(
        (1e-3, 0.02, 0.3), (1, 50, 3000), (0.3, 1.0, 3.0, 8.0), (1e-5, 1e-9), searches
    ):
        yield Calibrated(Poisson(rate), steps, ADD, "rdp", search, target, delta)
    for rate, steps, target, search in product((0.02, 0.3), (20, 1000), (0.5, 4.0), searches):
        yield Calibrated(Poisson(rate), steps, REPLACE, "pld", search, target, 1e-6)


def cost_over_target(setting: Calibrated, flaw: float = 1.0) -> float | None:
    """What the noise found costs over the target; or, if it is more noise than it need be, by how much."""
    try:
        found = calibrate(
            setting.events,
            target_epsilon=setting.target,
            delta=setting.delta,
            neighbouring=setting.neighbouring,
            accountant=setting.accountant,
            search=setting.search,
        )
    except ValueError as refused:
        assert "epsilon" in str(refused)
        return None
    noise = flaw * found.noise_multiplier
    if setting.search == "opacus":
        wasted = (setting.target - setting.cost(noise)) / OPACUS_TOLERANCE
    else:
        wasted = setting.target / setting.cost(0.9999 * noise)
    return max(setting.cost(noise) / setting.target, wasted)


@dataclass(frozen=True)
class Owned:
    """Owners with budgets, and one of the three ways to plan for them."""

    budgets: OwnerBudgets
    way: str

    @property
    def name(self) -> str:
        return f"{self.way} for {len(self.budgets.rows)} owners, {self.budgets.steps} steps"

    @property
    def plan(self) -> OwnerPlan:
        match self.way:
            case "rates":
                return plan_rates(self.budgets, bound=1.0)
            case "thresholds":
                return plan_thresholds(self.budgets, bound=1.0)
        return plan_both(self.budgets, bound=1.0, share=0.5)


def owned() -> Iterator[Owned]:
    """Seed 3."""
    generator = np.random.default_rng(3)
    for _ in range(20):
        count = int(generator.integers(1, 5))
        rows = tuple(generator.integers(1, 3000, count).tolist())
        budgets = OwnerBudgets(
            epsilons=tuple((10 ** generator.uniform(-0.7, 1.1, count)).tolist()),
            rows=rows,
            names=None,
            delta=float(10 ** generator.uniform(-8, -4)),
            steps=int(10 ** generator.uniform(1, 4)),
            batch_size=float(10 ** generator.uniform(-2.5, -0.3) * sum(rows)),
        )
        for way in ("rates", "thresholds", "both"):
            yield Owned(budgets, way)


def owners_over_budget(setting: Owned, flaw: float = 1.0) -> float:
    """Of each owner alone: epsilon by RDP over the budget, and the true delta at the budget over delta."""
    budgets, plan, worst = setting.budgets, setting.plan, 0.0
    for budget, rate, bound in zip(budgets.epsilons, plan.rates, plan.bounds, strict=True):
        event = GaussianEvent(Poisson(rate), flaw * plan.noise_std / bound, budgets.steps)
        spent = epsilon([event], delta=budgets.delta, neighbouring=ADD).epsilon
        worst = max(worst, spent / budget, delta_at([event], ADD, budget) / budgets.delta / (1 + ROUNDING))
    return worst


@dataclass(frozen=True)
class Matched:
    """A step at a higher rate, matched to a reference step."""

    reference: Step
    rate: float

    @property
    def name(self) -> str:
        return f"rate {self.rate:g} for {self.reference.rate:g}, noise {self.reference.scale:g}"


def matched() -> Iterator[Matched]:
    for rate, noise, factor in product((1e-3, 0.01, 0.1), (0.5, 1.0, 3.0, 20.0, 100.0), (1.05, 3.0, 10.0)):
        if factor * rate <= 1:
            yield Matched(Step(False, noise, rate, 1, -1), factor * rate)


def profile_over_reference(setting: Matched, flaw: float = 1.0) -> float:
    """The largest ratio of the two privacy profiles, where they are not negligible."""
    reference = setting.reference
    kappa = dominated_multipliers(
        np.array([setting.rate]), reference_rate=reference.rate, reference_multiplier=reference.scale
    )[0]
    step = replace(reference, rate=setting.rate, scale=flaw * float(kappa))
    both = [Profile(((one, 1),), 0.0) for one in (step, reference)]
    worst = 0.0
    for eps in (0.0, *np.geomspace(1e-5, 60.0, 120)):
        ours, limit = (profile.delta(eps) for profile in both)
        worst = max(worst, ours / (limit + NEGLIGIBLE) / (1 + 1e-5))
    return worst


@dataclass(frozen=True)
class Equalised:
    """A sampling rate whose steps get the noise that keeps a Renyi budget."""

    rate: float
    order: float
    budget: float
    sampling: SamplingName

    @property
    def name(self) -> str:
        return f"{self.sampling} at {self.rate:g}, order {self.order:g}, {self.budget:g} a step"


def equalised() -> Iterator[Equalised]:
    names: tuple[SamplingName, ...] = ("poisson", "without_replacement")
    for values in product((1e-4, 0.005, 0.1, 0.7, 1.0), (1.5, 4.0, 18.0, 63.0), (1e-7, 1e-4, 0.1), names):
        yield Equalised(*values)


def divergence_over_budget(setting: Equalised, flaw: float = 1.0) -> float | None:
    """By the definition, from both sides; without replacement of two pairs of data sets that exist."""
    poisson = setting.sampling == "poisson"
    if flaw != 1 and not (poisson and setting.order.is_integer()):
        return None  # there the bound is loose, and hides the flaw
    kappa = noise_multipliers(
        [setting.rate],
        order=setting.order,
        rdp_per_step=setting.budget,
        neighbouring=ADD if poisson else REPLACE,
        sampling=setting.sampling,
    )[0]
    pairs = ((1, 0), (0, 1)) if poisson else ((1, -1), (2, 0), (0, 2))
    moments = [Step(False, flaw * float(kappa), setting.rate, *pair).log_moment(setting.order - 1) for pair in pairs]
    return max(moments) / (setting.order - 1) / setting.budget / (1 + ROUNDING)


@dataclass(frozen=True)
class Answered:
    """Two answers from one draw, at one rate."""

    multipliers: tuple[float, float]
    rate: float
    delta: float

    @property
    def name(self) -> str:
        return f"answers with noise {self.multipliers}, rate {self.rate:g}, delta {self.delta:g}"


def answered() -> Iterator[Answered]:
    for first, ratio, rate, delta in product((0.7, 2.0, 5.0), (1.0, 1.5, 8.0), (0.01, 0.3, 1.0), (1e-3, 1e-6)):
        yield Answered((first, ratio * first), rate, delta)


def joint_answers(setting: Answered, *, jointly: bool = True) -> float | None:
    """The delta of one step in the plane of both answers, at the epsilon of the joint release."""
    law = Poisson(setting.rate) if setting.rate < 1 else Everyone()
    noises = [joint_multiplier(setting.multipliers)] if jointly else list(setting.multipliers)
    events = [GaussianEvent(law, noise) for noise in noises]
    claimed = epsilon(events, delta=setting.delta, neighbouring=ADD, accountant="pld").epsilon
    if claimed == 0:
        return None
    shifts = [1 / multiplier for multiplier in setting.multipliers]
    x, y = (np.linspace(-8, 8 + shift, 1200) for shift in shifts)
    absent = np.exp(-0.5 * (x[:, None] ** 2 + y[None] ** 2)) * (x[1] - x[0]) * (y[1] - y[0]) / (2 * math.pi)
    likelier = np.exp(x * shifts[0] - shifts[0] ** 2 / 2)[:, None] * np.exp(y * shifts[1] - shifts[1] ** 2 / 2)[None]
    present = absent * (1 - setting.rate + setting.rate * likelier)
    removed = np.maximum(present - math.exp(claimed) * absent, 0).sum()
    added = np.maximum(absent - math.exp(claimed) * present, 0).sum()
    return float(max(removed, added)) / setting.delta / 1.001


@dataclass(frozen=True)
class Grown:
    """A tree, and the steps at which a member takes part."""

    tree: Tree
    participations: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.tree.steps} steps, restart {self.tree.restart_every}, part in {self.participations}"


def grown() -> Iterator[Grown]:
    """Seed 7."""
    generator = np.random.default_rng(7)
    for _ in range(300):
        steps = int(generator.integers(1, 200))
        restart = None if generator.random() < 0.5 else int(generator.integers(1, steps + 1))
        held = np.sort(generator.choice(steps, int(generator.integers(1, min(steps, 12) + 1)), replace=False))
        yield Grown(Tree(steps=steps, restart_every=restart), tuple(held.tolist()))


def nodes_over_charge(setting: Grown, *, shared: bool = True) -> float:
    """By how much all nodes move, counted one by one, over what is charged; the twin forgets that nodes are shared."""
    tree, moved, one_each = setting.tree, 0, 0
    longest = tree.restart_every or tree.steps
    for start in range(0, tree.steps, longest):
        leaves = min(longest, tree.steps - start)
        width = 1
        while True:
            for first in range(0, leaves, width):
                node = range(start + first, start + min(first + width, leaves))
                held = sum(step in node for step in setting.participations)
                moved, one_each = moved + held**2, one_each + held
            if width >= leaves:
                break
            width *= 2
    return moved / (tree.squared_sensitivity(setting.participations) if shared else one_each)


@dataclass(frozen=True)
class Tabled:
    """Rates and multipliers of many owners, accounted at once."""

    rate: float
    noise: float
    steps: int
    delta: float

    @property
    def name(self) -> str:
        return f"{self.steps} steps at rate {self.rate:.3g}, noise {self.noise:.3g}, delta {self.delta:g}"


def tabled() -> Iterator[Tabled]:
    """Seed 5."""
    generator = np.random.default_rng(5)
    for _ in range(200):
        rate, noise = 10 ** generator.uniform(-6, 0), 10 ** generator.uniform(-0.5, 2)
        steps, delta = int(10 ** generator.uniform(0, 5)), 10 ** generator.uniform(-12, -3)
        yield Tabled(float(rate), float(noise), steps, float(delta))


def table_over_integral(setting: Tabled, flaw: float = 1.0) -> float | None:
    claimed = float(epsilons(setting.rate, flaw * setting.noise, steps=setting.steps, delta=setting.delta))
    if math.isinf(claimed):
        return None
    event = GaussianEvent(Poisson(setting.rate), setting.noise, setting.steps)
    return delta_at([event], ADD, claimed) / setting.delta / (1 + ROUNDING)
