"""Which broken twins a method has, and who catches each: the canary game at full batch, or a contract.

Every method has the twin whose noise is half of what is declared; the others are those of
runners/audit/twins.py and runners/audit/published.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from rawls.runners.audit.canary_game import RUNS, audit
from rawls.runners.audit.contracts.events import check_events, check_target
from rawls.runners.audit.contracts.law import check_law
from rawls.runners.audit.contracts.neighbours import check_neighbours
from rawls.runners.audit.contracts.noise import check_noise
from rawls.runners.audit.door import ContractBroken
from rawls.runners.audit.findings import TwinFound
from rawls.runners.audit.problem import ALGORITHMS, Case, case_of
from rawls.runners.audit.published import PUBLISHED
from rawls.runners.audit.twins import TWINS, HalfTheNoise

CONTRACTS: Mapping[str, Callable[[Case], object]] = {
    "neighbours": check_neighbours,
    "noise": check_noise,
    "events": check_events,
    "law": check_law,
    "target": check_target,
}
HALF = "half the noise"
ALL: Mapping[str, tuple[str, Case]] = {**TWINS, **PUBLISHED}


def twins_of(name: str) -> dict[str, tuple[str, Case]]:
    """The twins of a method, and the contract that each breaks."""
    half = ("noise", replace(case_of(name), streams=HalfTheNoise))
    return {HALF: half} | {twin: ALL[twin] for twin in ALL if twin != HALF and method_of(ALL[twin][1]) == name}


def method_of(twin: Case) -> str:
    """The method that a twin is one of: the nearest of its classes that a configuration names."""
    known = _names()
    return next(known[kind] for kind in type(twin.method).__mro__ if kind in known)


@lru_cache(maxsize=1)
def _names() -> Mapping[type, str]:
    return {type(case_of(name).method): name for name in ALGORITHMS}


def caught(twin: str, contract: str, case: Case, *, runs: int = RUNS) -> TwinFound:
    """Half the noise is for the attack to see, where its bound is exact; the contract sees what the attack does not."""
    began = time.perf_counter()
    if twin == HALF:
        shown, proven = audit(case, runs=runs)
        if shown.lower_bound > proven:
            says = f"epsilon is {shown.lower_bound:.3g} or more, where {proven:.3g} would be proven"
            return TwinFound(twin=twin, caught_by="canary game", says=says, seconds=time.perf_counter() - began)
    try:
        CONTRACTS[contract](case)
    except ContractBroken as broken:
        return TwinFound(
            twin=twin, caught_by=f"contract: {contract}", says=str(broken), seconds=time.perf_counter() - began
        )
    return TwinFound(twin=twin, caught_by="", says="nobody saw it", seconds=time.perf_counter() - began)
