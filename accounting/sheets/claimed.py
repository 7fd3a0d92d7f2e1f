"""What a method's paper claims beside what is proven, in words: for its privacy sheet and for a table of methods."""

from __future__ import annotations

from collections.abc import Sequence

from rawls.accounting.claims import RULES, Claim
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.sheets.words import listed, number

ROUNDING = 1e-3  # relative; an epsilon is another if it differs by more


def status(plan: Plan | None, claim: Claim | None) -> str:
    """For a table of methods, before training: 'proven', 'claim differs' or 'open', with the numbers."""
    if plan is None:
        return "open: no privacy"
    proven = f"proven: ε = {number(plan.epsilon)}"
    if claim is not None and claim.rule != "accounted":
        return f"claim differs: {_value(plan, claim, known=plan.claim is not None)} by `{claim.rule}`; {proven}"
    if missed := _missed(plan):
        covered = f"all groups but {len(missed)}"
        return f"claim differs: ε = {number(_of_the_covered(plan))}, for {covered}; {proven} for all"
    return proven


def claimed(plan: Plan, claim: Claim | None, groups: Sequence[str], *, known: bool) -> str:
    """What the paper prints, by which rule, and why that may be too low.

    Args:
        groups: their names.
        known: the claim's number is that of the run, which it may not be before training.
    """
    proven = f"Proven is ε = {number(plan.epsilon)}"
    if claim is not None and claim.rule != "accounted":
        note = f" ({claim.note})" if claim.note and known else ""
        printed = f"{_value(plan, claim, known=known)}, by the rule `{claim.rule}`{note}: {RULES[claim.rule]}"
        return f"It prints {printed}. {proven}."
    if missed := _missed(plan):
        names = listed([groups[group] for group in missed])
        return f"It prints ε = {number(_of_the_covered(plan))}, which does not hold for {names}. {proven} for all."
    return f"It prints what is proven: ε = {number(plan.epsilon)}."


def _value(plan: Plan, claim: Claim, *, known: bool) -> str:
    if not known:
        return "an ε that depends on the training"
    delta = "" if claim.delta == plan.budget.delta else f" at δ = {claim.delta:.3g}"
    return "no finite ε" if claim.epsilon is None else f"ε = {number(claim.epsilon)}{delta}"


def _missed(plan: Plan) -> tuple[int, ...]:
    """Groups for which the noise was not made, and whose records pass what is printed for the others."""
    covered, limit = {plan.population.groups[cell] for cell in plan.covered}, _of_the_covered(plan) * (1 + ROUNDING)
    return tuple(g for g, value in enumerate(plan.epsilon_per_group) if g not in covered and value > limit)


def _of_the_covered(plan: Plan) -> float:
    return max(plan.epsilon_per_cell[cell] for cell in plan.covered)
