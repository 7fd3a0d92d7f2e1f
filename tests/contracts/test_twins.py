"""Every contract rejects the twins that break it, by its own complaint."""

from collections.abc import Callable

import pytest

from tests.contracts.door import ContractBroken
from tests.contracts.events import check_events
from tests.contracts.law import check_law
from tests.contracts.neighbours import check_neighbours
from tests.contracts.noise import check_noise
from tests.contracts.problem import Case
from tests.contracts.twins import TWINS, WASTEFUL

CONTRACTS: dict[str, Callable[[Case], object]] = {
    "neighbours": check_neighbours,
    "noise": check_noise,
    "events": check_events,
    "law": check_law,
}


@pytest.mark.parametrize("name", TWINS)
def test_the_contract_rejects_its_twin(name: str) -> None:
    contract, twin = TWINS[name]
    with pytest.raises(ContractBroken) as broken:
        CONTRACTS[contract](twin)
    assert ("its noise is too large" in str(broken.value)) is (name == WASTEFUL)


def test_every_contract_with_a_check_has_a_twin() -> None:
    assert {contract for contract, _ in TWINS.values()} == set(CONTRACTS)
