"""All properties, over all of their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice

from rawls.accounting.events import Everyone, GaussianEvent, Poisson
from tests.accounting.crosscheck import planned, settings
from tests.accounting.crosscheck.properties import (
    ABSOLUTE,
    Property,
    below,
    delta_over,
    grouping,
    looseness,
    monotone,
    pure,
)
from tests.accounting.crosscheck.settings import ADD, Setting


def chained(*parts: Callable[[], Iterable[Setting]]) -> Callable[[], Iterable[Setting]]:
    return lambda: chain.from_iterable(part() for part in parts)


def only(keep: Callable[[Setting], bool], *parts: Callable[[], Iterable[Setting]]) -> Callable[[], Iterable[Setting]]:
    return lambda: filter(keep, chained(*parts)())


def _added(setting: Setting) -> bool:
    return setting.neighbouring is ADD


def _few_laplace(setting: Setting) -> bool:
    """Of many, a delta that is not 0 buys something even if it is 1e-300."""
    return all(isinstance(event.sampling, Everyone) and event.count <= 10 for event in setting.events)


def _usual(setting: Setting) -> bool:
    return setting.delta >= 1e-8 and all(event.noise_multiplier >= 0.8 for event in setting.events)


def _spends(setting: Setting) -> bool:
    """Roughly an epsilon of some tenths or more."""
    return sum(event.count * (event.sampling.rate / event.noise_multiplier) ** 2 for event in setting.events) > 0.02


def _known_to_rdp(setting: Setting) -> bool:
    return not any(isinstance(event.sampling, Poisson) for event in setting.events) or (
        _added(setting) and all(isinstance(event, GaussianEvent) for event in setting.events)
    )


def every(number: int, of: Callable[[], Iterable[Setting]]) -> Callable[[], Iterable[Setting]]:
    return lambda: islice(of(), 0, None, number)


GAUSSIAN = (settings.everyone, settings.poisson)
EVERY = (*GAUSSIAN, settings.without_replacement, settings.one_group, settings.laplace, settings.mixed)
# PLD takes seconds where there is little noise.
PLD = chained(every(2, chained(*GAUSSIAN)), every(2, settings.laplace), every(2, settings.mixed))
# Its own error is 0.01: of less it says nothing.
PRV = every(3, only(lambda setting: _added(setting) and _usual(setting) and _spends(setting), settings.poisson))

PROPERTIES: tuple[Property, ...] = (
    Property(
        name="RDP of Gaussian noise covers the integral",
        says="true delta at the epsilon of rdp / delta",
        settings=only(_known_to_rdp, *GAUSSIAN),
        sample=8,
        ratio=delta_over("rdp"),
        twin=delta_over("rdp", flaw=2.0),
    ),
    Property(
        name="RDP without replacement covers two pairs of data sets",
        says="their delta at the epsilon of rdp / delta",
        settings=chained(settings.without_replacement, settings.one_group),
        sample=4,
        ratio=delta_over("rdp"),
        twin=delta_over("rdp", flaw=4.0),
    ),
    Property(
        name="RDP of Laplace noise and mixtures covers the integral",
        says="true delta at the epsilon of rdp / delta",
        settings=only(_known_to_rdp, settings.laplace, settings.mixed),
        sample=4,
        ratio=delta_over("rdp"),
        twin=delta_over("rdp", flaw=2.0),
    ),
    Property(
        name="RDP of Laplace noise is pure privacy without a delta",
        says="each over the other",
        settings=only(_few_laplace, settings.laplace),
        sample=10,
        ratio=pure(),
        twin=pure(flaw=1.01),
    ),
    Property(
        name="PLD covers the integral",
        says="true delta at the epsilon of pld / delta",
        settings=PLD,
        sample=3,
        ratio=delta_over("pld"),
        twin=delta_over("pld", flaw=1.02),
    ),
    Property(
        name="PLD is the integral, rounded up",
        says="epsilon of pld, up to 50 / (1.01 true epsilon + 0.001); noise of 0.8 and more, delta of 1e-8 and more",
        settings=only(_usual, PLD),
        sample=2,
        ratio=looseness("pld", 0.01),
        twin=looseness("pld", 0.01, flaw=0.95),
    ),
    Property(
        name="RDP is no less than PLD",
        says="epsilon of pld / (1.01 epsilon of rdp + 0.001), where PLD is told from the integral by no more",
        settings=only(lambda setting: _usual(setting) and _added(setting), PLD),
        sample=3,
        ratio=below("pld", "rdp", 0.01, ABSOLUTE),
        twin=below("pld", "rdp", 0.01, ABSOLUTE, flaw=2.0),
    ),
    Property(
        name="PRV covers the integral",
        says="true delta at the epsilon of prv / delta",
        settings=PRV,
        sample=2,
        ratio=delta_over("prv"),
        twin=delta_over("prv", flaw=1.1),
    ),
    Property(
        name="PRV is no more than PLD and its own error",
        says="epsilon of prv / (1.01 epsilon of pld + 0.025)",
        settings=PRV,
        sample=2,
        ratio=below("prv", "pld", 0.01, 0.025),
        twin=below("prv", "pld", 0.01, 0.025, flaw=2.0),
    ),
    Property(
        name="RDP rises with what exposes more",
        says="largest epsilon with more noise, a step less, a lower rate or twice delta / epsilon",
        settings=only(_known_to_rdp, *EVERY),
        sample=28,
        ratio=monotone("rdp"),
        twin=monotone("rdp", flaw=1.1),
    ),
    Property(
        name="PLD rises with what exposes more",
        says="largest epsilon with more noise, a step less, a lower rate or twice delta / epsilon",
        settings=every(9, only(_usual, PLD)),
        sample=2,
        ratio=monotone("pld"),
        twin=monotone("pld", flaw=1.1),
    ),
    Property(
        name="RDP of any grouping is the same",
        says="epsilon of events split and shuffled over that of events with a count, and the other way round",
        settings=chained(settings.mixed, settings.one_group),
        sample=10,
        ratio=grouping("rdp"),
        twin=grouping("rdp", left_out=1),
    ),
    Property(
        name="PLD of any grouping is the same",
        says="epsilon of events split and shuffled over that of events with a count, and the other way round",
        settings=every(4, settings.mixed),
        sample=2,
        ratio=grouping("pld"),
        twin=grouping("pld", left_out=1),
    ),
    Property(
        name="calibrated noise meets the target, and hardly less would",
        says="cost / target; or the target / cost with 1e-4 less noise; or what is left over / 0.01 with search=opacus",
        settings=planned.calibrated,
        sample=5,
        ratio=planned.cost_over_target,
        twin=partial(planned.cost_over_target, flaw=0.99),
    ),
    Property(
        name="many owners at once cover the integral",
        says="true delta at the epsilon of the table / delta",
        settings=planned.tabled,
        sample=4,
        ratio=planned.table_over_integral,
        twin=partial(planned.table_over_integral, flaw=2.0),
    ),
    Property(
        name="every owner stays within its budget",
        says="epsilon by rdp / budget; and the true delta at the budget / delta",
        settings=planned.owned,
        sample=3,
        ratio=planned.owners_over_budget,
        twin=partial(planned.owners_over_budget, flaw=0.98),
    ),
    Property(
        name="equal groups stay within the budget of a step",
        says="divergence by the definition / budget",
        settings=planned.equalised,
        sample=20,
        ratio=planned.divergence_over_budget,
        twin=partial(planned.divergence_over_budget, flaw=0.98),
    ),
    Property(
        name="a matched step lies below its reference",
        says="largest profile of the step / profile of the reference, both integrated",
        settings=planned.matched,
        sample=2,
        ratio=planned.profile_over_reference,
        twin=partial(planned.profile_over_reference, flaw=0.99),
    ),
    Property(
        name="answers from one draw cost what they cost in the plane",
        says="delta by a double integral at the epsilon of the joint release / delta",
        settings=planned.answered,
        sample=3,
        ratio=planned.joint_answers,
        twin=partial(planned.joint_answers, jointly=False),
    ),
    Property(
        name="a tree charges all its nodes",
        says="squared shift of all nodes, counted one by one / what is charged",
        settings=planned.grown,
        sample=30,
        ratio=planned.nodes_over_charge,
        twin=partial(planned.nodes_over_charge, shared=False),
    ),
)
