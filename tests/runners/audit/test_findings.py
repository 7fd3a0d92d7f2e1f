"""Verdicts, from bad to good."""

from dataclasses import replace
from typing import Any

import pytest

from rawls.accounting.claims import RULES, SOUND, Claim
from rawls.runners.audit.findings import (
    BROKEN,
    BY_ATTACK,
    BY_LEDGER,
    HOLDS,
    NOT_CAUGHT,
    PROOF_REFUTED,
    Finding,
    TwinFound,
    claimed,
    verdict_on,
)

FOUND = Finding(
    attack="published sums", setting="full batch", record="smallest group", lower_bound=3.0, bound="gaussian",
    confidence=0.999, proven=8.0, claim=8.0, rule="accounted", runs=10, seconds=1.0,
)  # fmt: skip
CAUGHT = TwinFound(twin="half the noise", caught_by="canary game", says="", seconds=1.0)


@pytest.mark.parametrize(
    ("verdict", "changes"),
    [
        (HOLDS, {}),
        (HOLDS, {"claim": 8 * (1 - 1e-9)}),
        (HOLDS, {"claim": None, "rule": "gdp_clt"}),
        (HOLDS, {"claim": 9.0, "rule": "counts_charged_twice"}),
        (HOLDS, {"claim": 7.0, "rule": "advanced_composition"}),
        (BY_LEDGER, {"claim": 7.0, "rule": "counts_not_charged"}),
        (BY_ATTACK, {"claim": 2.9, "rule": "gdp_clt"}),
        (PROOF_REFUTED, {"lower_bound": 8.1}),
    ],
)
def test_the_verdict_follows_from_bound_claim_and_proof(verdict: str, changes: dict[str, Any]) -> None:
    assert verdict_on([FOUND, replace(FOUND, **changes)], [CAUGHT]) == verdict


def test_a_twin_that_nobody_caught_is_said_before_any_claim() -> None:
    missed = [CAUGHT, replace(CAUGHT, caught_by="")]
    assert verdict_on([replace(FOUND, claim=1.0, rule="gdp_clt")], missed) == NOT_CAUGHT
    assert verdict_on([replace(FOUND, lower_bound=9.0)], missed) == PROOF_REFUTED
    assert set(BROKEN) == {NOT_CAUGHT, PROOF_REFUTED}


def test_a_method_without_a_rule_of_its_own_claims_what_is_proven() -> None:
    assert claimed(None, 8.0) == (8.0, "accounted")
    assert claimed(Claim(rule="gdp_clt", epsilon=1.0, delta=1e-3), 8.0) == (1.0, "gdp_clt")
    assert set(RULES) >= SOUND
