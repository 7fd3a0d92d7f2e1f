"""The privacy sheet of a method on given data: who is protected, by how much, under which assumptions, and what is not.

For those who must answer for the data and read no code. It is made of the plan and of ledger lines alone, so that it
says what is accounted for and nothing else; a new method gets one without a word here. Open methods get one that says
that there is no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rawls.accounting.claims import Claim
from rawls.accounting.mechanism.plan import ASSUMED_PUBLIC, Plan
from rawls.accounting.sheets.claimed import ROUNDING, claimed
from rawls.accounting.sheets.published import Lines, draws_at_random, published
from rawls.accounting.sheets.words import (
    NEIGHBOURS,
    QUESTIONS,
    between,
    bullets,
    event_in_words,
    listed,
    number,
    percent,
    table,
)

FALSE_ALARMS = 0.01
MOST_ROWS = 24
MOST_CHARGES = 3
MOST_NAMES = 3
NOT_COVERED = (
    "Several records of one person taken together: each record is protected by itself.",
    "The limits of floating-point numbers: noise is taken for exact.",
)
SECRET_DRAWS = "Which records a step draws stays secret."
OPEN = (
    "Nobody is protected: this method trains without privacy. Nothing limits what the model, or whatever else is "
    "published of its training, may reveal of any training record: there is no ε. A budget that the command names is "
    "not used."
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a sheet is about, as far as accounting does not know it.

    Args:
        method, title, paper, file, readings: as the method's file says.
        data: the dataset, and that it is simulated if it is.
        made: how the sheet came about, in a sentence.
        group_names, owner_names: owners may have none.
        public: numbers of the schedule.
        granted: what the dataset takes for granted.
        assumptions: all that the proof takes for granted or leaves out, as the ledger says it.
        secure: whether noise comes from the operating system.
        adapts: whether later releases follow from earlier ones.
    """

    method: str
    title: str
    paper: str
    file: str
    readings: str
    data: str
    made: str
    group_names: tuple[str, ...]
    owner_names: tuple[str, ...]
    public: Mapping[str, float]
    granted: tuple[str, ...]
    assumptions: tuple[str, ...]
    secure: bool
    adapts: bool


def open_sheet(subject: Subject) -> str:
    """The sheet of a method without privacy, as Markdown."""
    return _joined([_title(subject), OPEN, subject.made, *_from_the_file(subject)])


def sheet(subject: Subject, plan: Plan, lines: Lines, claim: Claim | None, spent: Sequence[float] | None = None) -> str:
    """The sheet of a private method, as Markdown.

    Args:
        lines: of the ledger, or `planned_lines`.
        claim: what the paper would print.
        spent: epsilon of each cell by the ledger of a run that ended; None for a plan.
    """
    granted = (ASSUMED_PUBLIC[plan.budget.neighbouring], *subject.granted)
    left_out = [text for text in subject.assumptions if text not in (*granted, *plan.notes)]
    secret = [SECRET_DRAWS] if draws_at_random(plan.population, lines) else []
    public = ", ".join(f"{name} {number(value)}" for name, value in subject.public.items())
    return _joined(
        [
            _title(subject),
            f"{_who(subject, plan)} {_how_much(subject, plan)} {_as_long_as(subject, plan)}",
            subject.made,
            "## What is proven",
            _proven(plan),
            _parts(subject, plan, spent),
            bullets(map(_sentence, _remarks(plan, spent))),
            "## What is published of the training data",
            _about_answers(subject, plan, spent is not None),
            *published(plan.population, lines),
            "## What a record is charged with",
            _charged(subject, plan),
            "## What is taken for granted",
            bullets([*map(_sentence, granted), *secret, f"Public: {public}."]),
            "## What is not covered",
            bullets([*NOT_COVERED, *map(_sentence, left_out)]),
            "## What the paper claims",
            claimed(plan, claim, _groups(subject, plan), known=spent is not None or plan.claim is not None),
            *_from_the_file(subject),
        ]
    )


def _title(subject: Subject) -> str:
    return f"# Privacy sheet: {subject.method} on {subject.data}"


def _who(subject: Subject, plan: Plan) -> str:
    return (
        f"Each of the {plan.population.total:,} training records of {subject.data} is protected, one by one: there is "
        "a limit to how well anybody who sees the model, and every answer that is listed below, can tell "
        f"{QUESTIONS[plan.budget.neighbouring]}."
    )


def _how_much(subject: Subject, plan: Plan) -> str:
    target, delta = plan.budget.epsilon, plan.budget.delta
    most, least = plan.epsilon, plan.epsilon if plan.filtered else min(_by_part(plan))
    told = f"ε = {number(most)}"
    if target is not None and most > target * (1 + ROUNDING):
        told += f", more than the budget of {number(target)},"
    if number(least) != number(most):
        told += f" for {_most_exposed(subject, plan)} (for others less, down to {number(least)})"
    return (
        f"The limit is {told} at δ = {delta:.3g}, and it is proven: a test for the record that raises a false alarm in "
        f"{percent(FALSE_ALARMS)} of all cases can find it in at most {percent(_right(most, delta))} (a blind guess: "
        f"{percent(FALSE_ALARMS)})."
    )


def _right(epsilon: float, delta: float) -> float:
    """The most that any test detects at the given share of false alarms (Kairouz, Oh, Viswanath 2015)."""
    by_odds = math.exp(min(epsilon, 700.0)) * FALSE_ALARMS + delta
    return min(by_odds, 1 - math.exp(-epsilon) * (1 - FALSE_ALARMS - delta))


def _as_long_as(subject: Subject, plan: Plan) -> str:
    assumed, _, why = ASSUMED_PUBLIC[plan.budget.neighbouring].partition(": ")
    if subject.secure:
        return f"This holds if {assumed} ({why}); the noise came from the operating system, and nothing repeats it."
    return (
        f"This holds if {assumed} ({why}), and against those only who do not know the run's configuration, from which "
        "its noise can be computed."
    )


def _proven(plan: Plan) -> str:
    budget = plan.budget
    order = "" if plan.order is None else f", at the one Renyi order {number(plan.order)}"
    found = "given" if budget.epsilon is None else f"found for a budget of ε = {number(budget.epsilon)}"
    owner = " (its owner's budget is that of each of the owner's records)" if budget.owner_epsilons else ""
    rows = [
        ["Unit of privacy", f"one training record{owner}"],
        ["Neighbouring data", NEIGHBOURS[budget.neighbouring]],
        ["ε, the largest of any record", number(plan.epsilon)],
        ["δ", f"{budget.delta:.3g}"],
        ["Accountant", f"{budget.accountant.upper()}{order}"],
        ["Noise multiplier of the gradient", f"{number(plan.noise_multiplier)}, {found}"],
    ]
    return table(["Guarantee", "Value"], rows)


def _parts(subject: Subject, plan: Plan, spent: Sequence[float] | None) -> str:
    """Epsilon by group, and by owner where there are several; too many rows are told by their range."""
    population, values = plan.population, [_guaranteed(plan), *([] if spent is None else [spent])]
    groups, parts = _groups(subject, plan), dict[tuple[int, int], list[int]]()
    for cell, part in enumerate(zip(population.groups, population.owners, strict=True)):
        parts.setdefault(part, []).append(cell)
    titles = ["Records", "ε proven", "ε spent"][: 1 + len(values)]
    if len(parts) > MOST_ROWS:
        row = [number(len(parts)), number(population.total), *map(between, values)]
        return table(["Groups of owners", *titles], [row])
    owned = _is_owned(plan)
    rows = [
        [
            groups[group],
            *([_owner(subject, owner), _owner_budget(plan, owner)] if owned else []),
            number(sum(population.sizes[cell] for cell in cells)),
            *(number(max(each[cell] for cell in cells)) for each in values),
        ]
        for (group, owner), cells in parts.items()
    ]
    if not owned and len({tuple(row[2:]) for row in rows}) == 1:
        rows = [[f"every one of {len(rows)}", number(population.total), *rows[0][2:]]]
    return table(["Group", *(["Owner", "Budget ε"] if owned else []), *titles], rows)


def _remarks(plan: Plan, spent: Sequence[float] | None) -> list[str]:
    found = list(plan.notes)
    if plan.filtered:
        found.append("a filter ends the run before any record passes this ε, however the sampling changes")
    if plan.upper_bound:
        found.append("the plan is an upper bound: a run may spend less, never more")
    if plan.delta_set_aside:
        found.append(f"{plan.delta_set_aside:.3g} of δ is used up by the proof, and ε is computed with the rest")
    if plan.constants:
        fixed = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in plan.constants.items())
        found.append(f"fixed before training: {fixed}")
    if spent is not None:
        found.append("ε spent is what this run's ledger comes to; guaranteed is what was planned, which it kept")
    return found


def _about_answers(subject: Subject, plan: Plan, trained: bool) -> str:
    told = ["Training sees the data through these answers alone, and noise is added to each before anything sees it."]
    if plan.budget.neighbouring.sensitivity > 1:
        told.append("A record that is exchanged moves an answer by up to twice the bound, which is accounted for.")
    if subject.adapts:
        shown = "a number that changed has its range" if trained else "shown are those of the plan"
        told.append(f"What was published decides on later numbers: {shown}.")
    return " ".join(told)


def _charged(subject: Subject, plan: Plan) -> str:
    """Of the most exposed records, which may be exposed to different things."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for cell, (events, epsilon) in enumerate(zip(plan.events, plan.epsilon_per_cell, strict=True)):
        if epsilon >= plan.epsilon / (1 + ROUNDING):
            group = _groups(subject, plan)[plan.population.groups[cell]]
            alike.setdefault(tuple(map(event_in_words, events)), []).append(group)
    together = f"by {plan.budget.accountant.upper()}: ε = {number(plan.epsilon)} at δ = {plan.budget.delta:.3g}"
    parts = []
    for texts, of in list(alike.items())[:MOST_CHARGES]:
        names, groups = list(dict.fromkeys(of)), len(plan.population.group_sizes)
        whose = "any group" if len(of) == len(plan.events) else f"{_some(names, groups, 'groups')}, where exposed most"
        parts.append(f"A record of {whose}:\n\n{bullets(map(_sentence, (*texts, f'together, {together}')))}")
    return "\n\n".join(parts)


def _from_the_file(subject: Subject) -> list[str]:
    """What the method is and how its paper was read, in the words of its own file."""
    paper = subject.paper or "not named in the file"
    readings = ["How the code reads the paper, in the words of its file:", subject.readings] if subject.readings else []
    return ["## The method", subject.title, bullets([f"Paper: {paper}.", f"File: `{subject.file}`."]), *readings]


def _guaranteed(plan: Plan) -> tuple[float, ...]:
    """Of each cell; a filter lets all of them spend what the most exposed was planned to."""
    return (plan.epsilon,) * len(plan.epsilon_per_cell) if plan.filtered else plan.epsilon_per_cell


def _most_exposed(subject: Subject, plan: Plan) -> str:
    """Whose records have the largest epsilon."""
    owned, worst = _is_owned(plan), _by_part(plan)
    exposed = [place for place, value in enumerate(worst) if value >= plan.epsilon / (1 + ROUNDING)]
    groups = _groups(subject, plan)
    names = [_owner(subject, place) if owned else groups[place] for place in exposed]
    return _some(names, len(worst), "owners" if owned else "groups")


def _some(names: Sequence[str], total: int, kind: str) -> str:
    return listed(names) if len(names) <= MOST_NAMES else f"{len(names)} of {total} {kind}"


def _is_owned(plan: Plan) -> bool:
    return len(plan.population.owner_sizes) > 1


def _by_part(plan: Plan) -> tuple[float, ...]:
    """The largest epsilon of each owner where there are several, else of each group."""
    return plan.epsilon_per_owner if _is_owned(plan) else plan.epsilon_per_group


def _groups(subject: Subject, plan: Plan) -> tuple[str, ...]:
    """Their names; datasets name all of theirs."""
    return subject.group_names or tuple(f"group {group}" for group in range(len(plan.population.group_sizes)))


def _owner(subject: Subject, owner: int) -> str:
    return subject.owner_names[owner] if owner < len(subject.owner_names) else f"budget class {owner + 1}"


def _owner_budget(plan: Plan, owner: int) -> str:
    budgets = plan.budget.owner_epsilons
    return number(budgets[owner]) if owner < len(budgets) else "that of all"


def _sentence(text: str) -> str:
    return f"{text[:1].upper() if text[:1].isascii() else text[:1]}{text[1:]}."


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(filter(None, blocks)) + "\n"
