"""Contract: what the ledger charges is what its own lines say, worked out here by other, naive code.

From (law, bounds, noise) of each stored line: the sampling of every cell, and one multiplier for all answers of a
draw. The cost of the plan is the ledger's, or above it where the plan says so; a charge by a dominating step is
compared profile by profile on a grid of outputs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
from scipy import stats

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import Event, event_from_dict
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import Method
from rawls.runners.audit.door import ContractBroken, Door
from rawls.runners.audit.problem import Case, fleet_of, members_of

WITHIN = 1e-9  # relative; multipliers are a few roundings of double
Record = dict[str, Any]


def check_events(case: Case) -> None:
    """Raise ContractBroken unless a whole run's ledger, as stored, charges what follows from its lines."""
    stepper: Any = fleet_of(case, members_of(case, ["events"]))
    member, door = stepper.members[0], Door(stepper)
    for step in range(case.steps):
        if stepper.ended():
            break
        stepper.step(step)
    try:
        spent = member.plan.check(member.ledger)
    except ValueError as refusal:
        raise ContractBroken(f"the ledger is not the plan's: {refusal}") from refusal
    _check_complete(door, member.ledger)
    try:
        again = Ledger(Streams("again"), member.task.population, json.loads(json.dumps(member.ledger.to_dicts())))
    except ValueError as refusal:
        raise ContractBroken(f"a stored line is refused: {refusal}") from refusal
    if again.events() != member.ledger.events():
        raise ContractBroken("the stored lines say another cost than what was charged")
    population = json.loads(json.dumps(member.task.population.to_dict()))
    lines = json.loads(json.dumps(member.ledger.to_dicts()))
    cells: list[list[Event]] = [[] for _ in case.sizes]
    for line, kept in zip(lines, member.ledger._lines, strict=True):
        charged = [None if event is None else event.to_dict() for event in kept.events]
        if len(charged) != len(case.sizes):
            raise ContractBroken(f"'{line['name']}' charges {len(charged)} of {len(case.sizes)} cells")
        for cell, event in enumerate(charged):
            _check_charge(line, cell, population, event)
            if event is not None:
                cells[cell].append(event_from_dict(event).times(line["count"]))
    _check_planned(member.plan, lines)
    _check_epsilons(
        member.plan,
        [_merged(events) for events in cells],
        spent,
        fixed=getattr(type(member.method), "adapt", Method.adapt) is Method.adapt,
    )


def _check_complete(door: Door, ledger: Ledger) -> None:
    """Whatever was published has its place in a line; of a pass, every round has."""
    published = Counter(release for release, answer, _ in door.passed[0] if answer == release)
    recorded: Counter[str] = Counter()
    for line in ledger._lines:
        recorded[line.release["name"]] += line.count if line.taken is None else sum(line.taken)
    if published != recorded:
        raise ContractBroken(f"{dict(published)} were published, the ledger has {dict(recorded)}")


def _check_planned(plan: Plan, lines: list[Record]) -> None:
    """What a plan says of its releases, for those who read it, is what is released; laws may change in training."""
    first = {line["name"]: line for line in reversed(lines)}
    for release, _ in plan.charges:
        planned: Record = json.loads(json.dumps(release.to_dict()))
        made = first.get(release.name, planned)
        for key in ("bounds", "noise_std", "noise", "look", "beside"):
            if planned.get(key) != made.get(key):
                raise ContractBroken(f"'{release.name}' has {key} {made.get(key)}, the plan says {planned.get(key)}")
        if planned["law"]["law"] != made["law"]["law"]:
            raise ContractBroken(f"'{release.name}' is drawn by {made['law']}, the plan says {planned['law']}")


def _merged(events: list[Event]) -> tuple[Event, ...]:
    counts: dict[Event, int] = {}
    for event in events:
        once = event_from_dict(event.to_dict() | {"count": 1})
        counts[once] = counts.get(once, 0) + event.count
    return tuple(event.times(count) for event, count in counts.items())


def _check_charge(line: Record, cell: int, population: Record, event: Record | None) -> None:
    """What one line charges a cell is the naive event of its law, bounds and noise."""
    sampling = naive_sampling(line["law"], cell, population)
    multiplier = naive_multiplier(line, cell)
    where = f"cell {cell} of '{line['name']}'"
    if sampling is None or math.isinf(multiplier):
        if event is not None:
            raise ContractBroken(f"{where} is charged {event}, though nothing of it is drawn")
        return
    if event is None:
        raise ContractBroken(f"{where} is drawn and not charged")
    if "charged_as" in line:
        if event != line["charged_as"]:
            raise ContractBroken(f"{where} is charged {event}, not the step that is said to dominate it")
        _check_dominated(where, sampling, multiplier, event)
        return
    kind = line.get("noise", "gaussian")
    if event["kind"] != kind or event["sampling"] != sampling or event["count"] != 1:
        raise ContractBroken(f"{where} is charged {event}, not one {kind} answer from {sampling}")
    if not math.isclose(event["noise_multiplier"], multiplier, rel_tol=WITHIN):
        raise ContractBroken(f"{where} is charged at {event['noise_multiplier']}, but its lines say {multiplier}")


def naive_sampling(law: Record, cell: int, population: Record) -> Record | None:
    """What a law, as stored, means for a member of a cell."""
    sizes = population["sizes"]
    match law["law"]:
        case "uniform_poisson":
            rate = law["rate"]
        case "cell_poisson":
            rate = law["rates"][cell]
        case "uniform_without_replacement":
            return _without_replacement(sum(sizes), law["batch"])
        case "stratified_without_replacement" | "one_group":
            return _without_replacement(sizes[cell], law["batches"][cell])
        case "whole_training_set":
            return {"law": "everyone"}
        case "whole_fold":
            return {"law": "everyone"} if population.get("folds", [0] * len(sizes))[cell] == law["fold"] else None
        case other:
            raise ContractBroken(f"no accountant here knows the law {other!r}")
    return {"law": "poisson", "rate": rate} if rate > 0 else None


def _without_replacement(population: int, batch: int) -> Record | None:
    if batch == 0:
        return None
    if batch == population:
        return {"law": "everyone"}
    return {"law": "without_replacement", "population": population, "batch": batch}


def naive_nodes(line: Record) -> int:
    """How many noisy sums a row is in: one, or those that halve the rounds of the longest tree down to a leaf."""
    tree = line.get("tree")
    leaves, nodes = 1, 1
    while tree and leaves < min(tree["restart_every"] or tree["steps"], tree["steps"]):
        leaves, nodes = 2 * leaves, nodes + 1
    return nodes


def naive_multiplier(line: Record, cell: int) -> float:
    """1 / root of the sum of (bound / scale)^2 over all answers of the line."""
    exposure = 0.0
    for answer in (line, *line.get("look", ()), *line.get("beside", ())):
        scale = answer["noise_std"] / (math.sqrt(2) if answer.get("noise") == "laplace" else 1)
        exposure += naive_nodes(line) * (answer["bounds"][cell] / scale) ** 2
    return 1 / math.sqrt(exposure) if exposure else math.inf


def _check_dominated(where: str, sampling: Record, multiplier: float, reference: Record) -> None:
    """The privacy profile, by summing the positive part of a difference of densities, lies below the reference's."""
    assert sampling["law"] == "poisson"
    ours = _profile(sampling["rate"], multiplier)
    theirs = _profile(reference["sampling"]["rate"], reference["noise_multiplier"])
    if not (ours <= theirs * (1 + 1e-4) + 1e-9).all():
        raise ContractBroken(f"{where}, at {sampling} and {multiplier}, reveals more than it is charged as")


def _profile(rate: float, multiplier: float) -> np.ndarray:
    """delta at 40 epsilons; replace-one: mixtures with the record at +1 and -1."""
    outputs = np.linspace(-12 * multiplier - 1, 12 * multiplier + 1, 40_001)
    plus, minus, absent = (stats.norm.pdf(outputs, at, multiplier) for at in (1, -1, 0))
    here, there = (1 - rate) * absent + rate * plus, (1 - rate) * absent + rate * minus
    epsilons = np.linspace(0, 3, 40)[:, None]
    return np.asarray(np.maximum(here - np.exp(epsilons) * there, 0).sum(1) * (outputs[1] - outputs[0]))


def _check_epsilons(plan: Plan, cells: list[tuple[Event, ...]], spent: tuple[float, ...], *, fixed: bool) -> None:
    """Epsilon from the stored lines is what the run reports, and what was planned.

    Where releases change with what was seen (they are not `fixed`), a cell that was not drawn may be left below.
    """
    for cell, events in enumerate(cells):
        found = 0.0
        if events:
            budget = plan.budget
            found = epsilon(
                events,
                delta=budget.delta - plan.delta_set_aside,
                neighbouring=budget.neighbouring,
                accountant=budget.accountant,
                order=plan.order,
                chosen=budget.chosen,
            ).epsilon
        if not math.isclose(found, spent[cell], rel_tol=1e-6, abs_tol=1e-9):
            raise ContractBroken(f"cell {cell}: the stored lines cost {found}, the run reports {spent[cell]}")
        planned = plan.epsilon_per_cell[cell]
        if plan.upper_bound or plan.filtered:
            if found > plan.epsilon * (1 + 1e-6):
                raise ContractBroken(f"cell {cell} costs {found}, above the plan's {plan.epsilon}")
        elif found > planned * (1 + 1e-6) or (fixed and not math.isclose(found, planned, rel_tol=1e-6)):
            raise ContractBroken(f"cell {cell} was planned to cost {planned} and costs {found}")
    if not (plan.upper_bound or plan.filtered or math.isclose(max(spent), plan.epsilon, rel_tol=1e-6)):
        raise ContractBroken(f"the run costs {max(spent)}, but {plan.epsilon} was planned")


def check_target(case: Case) -> None:
    """Raise ContractBroken unless the plan spends the budget, and no more, on the cells that it covers."""
    plan = case.plan
    target = plan.budget.epsilon
    if target is None:
        return
    most = max(plan.epsilon_per_cell[cell] for cell in plan.covered)
    if not 0.99 * target <= most <= target * (1 + 1e-9):
        raise ContractBroken(f"the cells that are covered cost up to {most}, the target is {target}")
