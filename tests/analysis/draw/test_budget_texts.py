import math

import pandas as pd

from rawls.analysis.draw.budget_texts import between, budgets, claim_text, epsilons, order, titled

NAN = math.nan


def runs(*rows: tuple[object, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["private", "epsilon_target", "epsilon_max", "noise_multiplier"])


KINDS = runs((True, 8.0, 7.99, 0.9), (True, NAN, 3.25, 1.1), (False, NAN, NAN, NAN), (None, NAN, NAN, NAN))


def test_a_budget_is_an_epsilon_a_noise_or_none_and_what_is_not_known_is_a_dash() -> None:
    assert list(budgets(KINDS)) == ["8", "noise 1.1", "no privacy", "–"]
    assert [titled(budget) for budget in budgets(KINDS)] == ["ε = 8", "noise 1.1", "no privacy", "–"]


def test_given_noise_stands_where_it_came_to_and_an_open_run_nowhere() -> None:
    assert list(epsilons(KINDS).fillna(-1)) == [8.0, 3.25, -1, -1]


def test_epsilons_rise_before_noises_and_no_privacy_is_last() -> None:
    mixed = ["no privacy", "noise 1.1", "10", "8", "0.5"]
    assert sorted(mixed, key=order) == ["0.5", "8", "10", "noise 1.1", "no privacy"]


def test_a_claim_names_its_rule_where_it_has_one_even_without_a_finite_epsilon() -> None:
    claims = pd.DataFrame({"claim_epsilon": [1.67, NAN], "claim_rule": ["gdp_clt", None]})
    assert claim_text(claims[:1]) == "1.670 (gdp_clt)"
    assert claim_text(claims[1:]) == "–"
    assert claim_text(claims[:1].assign(claim_epsilon=NAN)) == "– (gdp_clt)"
    assert between([0.99, 1.01, NAN, None], ".1f") == "1.0"
