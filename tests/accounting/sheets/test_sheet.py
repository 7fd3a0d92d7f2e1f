"""Privacy sheets say what plan and ledger say: who is protected, by how much, what was published, what is claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import norm

from rawls.accounting.claims import counts_not_charged, gdp_epsilon
from rawls.accounting.events import GaussianEvent, LaplaceEvent, Neighbouring, Poisson, RdpEvent
from rawls.accounting.mechanism.plan import Budget, Charge, Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import CellPoisson, Population, WholeTrainingSet
from rawls.accounting.sheets.claimed import status
from rawls.accounting.sheets.published import planned_lines
from rawls.accounting.sheets.sheet import FALSE_ALARMS, MOST_ROWS, Subject, _right, open_sheet, sheet
from rawls.accounting.sheets.words import event_in_words, listed, number, percent
from tests.accounting.sheets.naive import answer_rows, tables

CELLS = Population((50, 1000))
BUDGET = Budget(epsilon=2.0, delta=1e-4, neighbouring=Neighbouring.ADD_REMOVE, accountant="rdp", search="tight")
SUBJECT = Subject(
    method="mine", title="Mine: a method.", paper="Nobody 2026", file="algorithms/mine.py", readings="- read so",
    data="coins", made="This is a plan.", group_names=("heads", "tails"), owner_names=(),
    public={"training records": 1050, "divisor": 5.25}, granted=("means are public",), assumptions=("means are public",
    "tuning is free"), secure=False, adapts=False,
)  # fmt: skip


def gradient(kappa: float, rates: tuple[float, float] = (0.2, 0.1), cells: Population = CELLS) -> Release:
    beside = (Answer(name="counts", bounds=(1.0, 0.5), noise_std=10 * kappa),)
    law = CellPoisson(cells, rates)
    return Release(name="gradient", law=law, bounds=(2.0, 1.0), noise_std=2 * kappa, beside=beside)


def charges(kappa: float) -> Sequence[Charge]:
    losses = Release(name="losses", law=WholeTrainingSet(CELLS), bounds=(1.0, 1.0), noise_std=30 * kappa)
    return [(gradient(kappa), 1200), (losses, 1)]


def said(plan: Plan, subject: Subject = SUBJECT, **more: Any) -> str:
    return sheet(subject, plan, more.pop("lines", planned_lines(plan)), more.pop("claim", plan.claim), **more)


PLAN = BUDGET.plan(charges)


def test_the_first_three_sentences_say_who_is_protected_by_how_much_and_when() -> None:
    title, first = said(PLAN).split("\n\n")[:2]
    assert title == "# Privacy sheet: mine on coins"
    who, limit, holds = first.split(". ")
    assert who.startswith("Each of the 1,050 training records of coins is protected, one by one: there is a limit")
    assert who.endswith("can tell whether this record was there or not")
    least = number(min(PLAN.epsilon_per_group))
    assert limit.startswith(f"The limit is ε = 2 for heads (for others less, down to {least}) at δ = 0.0001, and it is")
    assert limit.endswith(f"in at most {percent(math.e**2 / 100 + 1e-4)} (a blind guess: 1 %)")
    assert holds.startswith("This holds if group sizes are public (a record that is removed counts as one that")
    assert "only who do not know the run's configuration" in holds


def test_the_relation_and_where_noise_comes_from_change_the_sentences() -> None:
    budget = replace(BUDGET, neighbouring=Neighbouring.REPLACE_ONE)
    text = said(budget.plan(lambda kappa: [charges(kappa)[1]]), replace(SUBJECT, secure=True))
    assert "whether it was this record or another one in its place" in text
    assert "the noise came from the operating system" in text and "do not know the run's configuration" not in text
    assert "moves an answer by up to twice the bound" in text and "twice the bound" not in said(PLAN)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_no_test_suspects_rightly_more_often_than_is_said(mu: float) -> None:
    """Of mu-GDP the best test is known; the sentence must allow it at every delta, and is no empty one."""
    best = norm.cdf(norm.ppf(FALSE_ALARMS) + mu)
    allowed = [_right(gdp_epsilon(mu, delta), delta) for delta in (1e-6, 1e-4, 1e-2)]
    assert all(best <= each <= 1 for each in allowed)
    assert min(allowed) < best + 0.3
    assert _right(0.0, 0.0) == pytest.approx(FALSE_ALARMS)
    assert _right(1e4, 1e-5) == 1


def test_epsilons_are_the_plans_and_those_spent() -> None:
    rows = tables(said(PLAN, spent=(1.5, 0.25)))["Group"]
    expected = [f"{epsilon:.4g}" for epsilon in PLAN.epsilon_per_group]
    assert rows == [["heads", "50", expected[0], "1.5"], ["tails", "1,000", expected[1], "0.25"]]
    guarantee = dict(tables(said(PLAN))["Guarantee"])
    assert guarantee["ε, the largest of any record"] == f"{PLAN.epsilon:.4g}" and guarantee["δ"] == "0.0001"
    assert guarantee["Noise multiplier of the gradient"] == f"{PLAN.noise_multiplier:.4g}, found for a budget of ε = 2"


def test_the_answers_are_those_of_the_ledgers_lines() -> None:
    """Naive code; of a value that changed, its range."""
    changed = replace(gradient(3.0), bounds=(0.5, 0.25), noise_std=1.5)
    noisy = Release(name="votes", law=WholeTrainingSet(CELLS), bounds=(1.0, 0.0), noise_std=7.0, noise="laplace")
    lines = [{**release.to_dict(), "count": count} for release, count in ((gradient(3.0), 1000), (changed, 200))]
    lines.append({**noisy.to_dict(), "count": 1})
    rows = tables(said(PLAN, lines=lines))["Answer"]
    assert rows == answer_rows(lines)
    assert rows[0] == ["gradient", "1,200 times", "0.25 to 2 (2-norm)", "Gaussian, std 1.5 to 6", "3 to 6"]
    assert rows[2] == ["votes", "once", "1 (1-norm)", "Laplace, std 7", "4.95"]
    assert answer_rows([{**lines[0], "noise_std": 6.01}]) != answer_rows(lines[:1])


def test_rates_and_joint_charges_are_said() -> None:
    text = said(PLAN)
    assert "Each time a record takes part with probability 0.1 to 0.2; that is public." in text
    kappa = PLAN.noise_multiplier
    joint = [kappa / math.hypot(bound / 2, count / 10) for bound, count in ((2.0, 1.0), (1.0, 0.5))]
    assert f"together as one whose noise is {joint[0]:.4g} to {joint[1]:.4g} times its bound" in text
    noise = f"Gaussian noise of {joint[0]:.4g} times the bound"
    assert f"- 1,200 times: {noise}, on a Poisson sample at rate 0.2.\n" in text
    assert f"- Once: Gaussian noise of {30 * kappa:.4g} times the bound, on all records.\n" in text


def test_a_charge_by_a_dominating_step_is_named() -> None:
    law = CellPoisson(CELLS, (0.1, 0.05))
    charged = PLAN.charges[1][0].event(0)
    release = Release(name="gradient", law=law, bounds=(1.0, 1.0), noise_std=4.0)
    line = {**release.to_dict(), "count": 3, "charged_as": {**release.event(0).to_dict()}}  # type: ignore[union-attr]
    assert charged is not None
    assert "Charged as a step that reveals no less, by a proof: once: Gaussian noise of 4 times" in said(
        PLAN, lines=[line]
    )


def test_what_a_line_says_beyond_every_release_is_shown_too() -> None:
    """Kinds of releases that are not known yet; their cost is in the plan's events."""
    line = {**gradient(3.0).to_dict(), "count": 1, "first_step": 0, "last_step": 9}
    assert "Further numbers" not in said(PLAN, lines=[line])
    new = {**line, "rounds": 1000, "taken": [1, 2], "tree": {"nodes": 11, "restart_every": None, "sparse": True}}
    assert "- gradient: Further numbers of it: rounds 1,000, tree nodes 11.\n" in said(PLAN, lines=[new])


def test_what_is_granted_and_what_is_left_out_stand_apart() -> None:
    parts = said(PLAN, replace(SUBJECT, assumptions=(*PLAN.assumptions, *SUBJECT.assumptions))).split("\n## ")
    titled = {name: next(part for part in parts if part.startswith(f"What is {name}")) for name in ("taken", "not")}
    granted, left_out = titled["taken"], titled["not"]
    public = "Public: training records 1,050, divisor 5.25."
    assert f"- Means are public.\n- Which records a step draws stays secret.\n- {public}" in granted
    nothing_drawn = said(BUDGET.plan(lambda kappa: [charges(kappa)[1]]))
    assert "stays secret" not in nothing_drawn
    assert "Group sizes are public" in granted and "Tuning is free" not in granted
    assert "- Tuning is free." in left_out and "selection on the validation set" in left_out
    assert "public" not in left_out


def test_bounds_filters_and_constants_are_remarked_on() -> None:
    plan = replace(PLAN, filtered=True, upper_bound=True, constants={"rdp_per_step": 0.5}, notes=("a note",))
    plan = replace(plan, delta_set_aside=1e-6)
    text = said(plan)
    for remark in (
        "A note.",
        "A filter ends",
        "The plan is an upper",
        "1e-06 of δ is used",
        "Fixed before training: rdp per step 0.5.",
    ):
        assert f"\n- {remark}" in text
    assert tables(text)["Group"] == [["every one of 2", "1,050", f"{plan.epsilon:.4g}"]]
    assert "for others less" not in text


def test_owners_stand_by_their_budgets() -> None:
    cells = Population((50, 1000), groups=(0, 0), owners=(0, 1))
    budget = replace(BUDGET, owner_epsilons=(2.0, 0.5))
    plan = budget.plan(lambda kappa: [(gradient(kappa, cells=cells), 10)])
    text = said(plan, replace(SUBJECT, owner_names=("Ann",)))
    rows = [row[:4] for row in tables(text)["Group"]]
    assert rows == [["heads", "Ann", "2", "50"], ["heads", "budget class 2", "0.5", "1,000"]]
    assert "The limit is ε = 2 for Ann (for others less, down to" in text


def test_thousands_of_owners_are_told_by_their_range() -> None:
    many = MOST_ROWS + 1
    cells = Population((10,) * many, groups=(0,) * many, owners=tuple(range(many)))
    law = CellPoisson(cells, tuple(0.1 + owner / 100 for owner in range(many)))
    release = Release(name="gradient", law=law, bounds=(1.0,) * many, noise_std=4.0)
    plan = replace(BUDGET, epsilon=None, noise_multiplier=4.0).plan(lambda _: [(release, 10)])
    (row,) = tables(said(plan))["Groups of owners"]
    assert row == ["25", "250", f"{min(plan.epsilon_per_owner):.4g} to {max(plan.epsilon_per_owner):.4g}"]


def test_claims_stand_beside_the_proof() -> None:
    assert "It prints what is proven: ε = 2." in said(PLAN) and status(PLAN, None) == "proven: ε = 2"
    claim = counts_not_charged(rate=0.1, noise_multiplier=PLAN.noise_multiplier, steps=1200, delta=1e-4)
    text = said(PLAN.claiming(claim))
    assert f"It prints ε = {claim.epsilon:.4g}, by the rule `counts_not_charged` (gradients only): only the" in text
    assert "Proven is ε = 2." in text
    assert status(PLAN.claiming(claim), claim).startswith(f"claim differs: ε = {claim.epsilon:.4g} by `counts_not_ch")
    unknown = said(PLAN, claim=claim)
    assert f"{claim.epsilon:.4g}" not in unknown and "an ε that depends on the training" in unknown
    assert "an ε that depends on the training" in status(PLAN, claim)
    assert f"ε = {claim.epsilon:.4g}, by" in said(PLAN, claim=claim, spent=PLAN.epsilon_per_cell)
    nothing = replace(claim, epsilon=None, delta=0.5)
    assert "It prints no finite ε, by" in said(PLAN.claiming(nothing))


def test_groups_that_the_noise_was_not_made_for_are_named() -> None:
    plan = BUDGET.plan(charges, covered=(1,))
    text = said(plan)
    assert f"ε = {plan.epsilon:.4g}, more than the budget of 2, for heads (for others less, down to 2)" in text
    assert f"It prints ε = 2, which does not hold for heads. Proven is ε = {plan.epsilon:.4g} for all." in text
    assert status(plan, None) == f"claim differs: ε = 2, for all groups but 1; proven: ε = {plan.epsilon:.4g} for all"
    assert "more than the budget" not in said(PLAN)


def test_an_open_method_says_that_there_is_no_privacy() -> None:
    text = open_sheet(SUBJECT)
    assert text.split("\n\n")[1].startswith("Nobody is protected: this method trains without privacy.")
    assert "ε =" not in text and "δ" not in text and "Paper: Nobody 2026." in text
    assert status(None, None) == "open: no privacy"


def test_a_file_that_names_no_paper_is_said_so() -> None:
    assert "- Paper: not named in the file." in open_sheet(replace(SUBJECT, paper=""))


def test_words() -> None:
    assert [listed(texts) for texts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert (percent(0.00001), percent(0.5), percent(1.0)) == ("0.01 %", "50 %", "100 %")
    assert event_in_words(RdpEvent(2.0, 0.25, 7)) == (
        "7 times: at most 0.25 in Renyi divergence of order 2, however the records are drawn"
    )
    assert event_in_words(LaplaceEvent(Poisson(0.5), 2.0)) == (
        "once: Laplace noise of 2 times the bound, on a Poisson sample at rate 0.5"
    )


def test_records_that_are_exposed_most_to_different_things_are_told_apart() -> None:
    everyone = PLAN.charges[1][0].event(0)
    assert isinstance(everyone, GaussianEvent)
    same_cost = replace(everyone, sampling=Poisson(1.0))
    told = said(replace(PLAN, events=((everyone,), (same_cost,))))
    assert [line for line in told.splitlines() if line.startswith("A record of")] == [
        "A record of heads, where exposed most:",
        "A record of tails, where exposed most:",
    ]
    assert told.count("- Together, by RDP: ") == 2
    assert "\nA record of any group:\n" in said(replace(PLAN, events=((everyone,), (everyone,))))
    assert said(replace(PLAN, events=((everyone,), ()))).count("\nA record of") == 1
