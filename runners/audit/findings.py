"""What an audit finds of a method, and the verdict: plain numbers and words, as they are stored and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rawls.accounting.claims import SOUND, Claim

HOLDS = "holds"
BY_ATTACK = "claim refuted by attack"
BY_LEDGER = "claim refuted by the ledger"
NOT_CAUGHT = "twin not caught"
PROOF_REFUTED = "proof refuted by attack"
BROKEN = (NOT_CAUGHT, PROOF_REFUTED)  # verdicts on us, not on a paper: the command fails


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One lower bound on epsilon, beside what is proven and claimed where it was found.

    Args:
        attack: what the attacker sees or does.
        setting: how the runs trained.
        record: whose epsilon it is.
        lower_bound: 0 where the attack shows nothing.
        bound: 'gaussian' where the runs are known to be Gaussian DP, 'any' for one that holds for every mechanism.
        confidence: that epsilon is no lower.
        proven: for that record; `claim`: by the paper's rule, for such a run.
        runs: trained for it, on all sides, pilots included.
    """

    attack: str
    setting: str
    record: str
    lower_bound: float
    bound: str
    confidence: float
    proven: float
    claim: float | None
    rule: str
    runs: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TwinFound:
    """A broken twin, and who caught it: an attack or a contract; nobody, if `caught_by` is empty.

    Args:
        says: the contract's complaint, or what the attack proves.
    """

    twin: str
    caught_by: str
    says: str
    seconds: float


def claimed(claim: Claim | None, proven: float) -> tuple[float | None, str]:
    """A claim's epsilon and rule; a paper that has no rule of its own prints what is proven."""
    return (proven, "accounted") if claim is None else (claim.epsilon, claim.rule)


def verdict_on(findings: Sequence[Finding], twins: Sequence[TwinFound]) -> str:
    """The worst that was found: of our proof, of our twins, of the paper's claim."""
    if any(found.lower_bound > found.proven for found in findings):
        return PROOF_REFUTED
    if not all(twin.caught_by for twin in twins):
        return NOT_CAUGHT
    claims = [(found, found.claim) for found in findings if found.claim is not None]
    if any(found.lower_bound > claim for found, claim in claims):
        return BY_ATTACK
    if any(claim < found.proven * (1 - WITHIN) and found.rule not in SOUND for found, claim in claims):
        return BY_LEDGER
    return HOLDS


WITHIN = 1e-6  # relative: a claim that is our own number, computed twice
