"""Every contract rejects the twins that break it, by its own complaint."""

import pytest

from rawls.runners.audit.contracts.neighbours import check_neighbours
from rawls.runners.audit.door import ContractBroken
from rawls.runners.audit.published import COMPLAINTS, DROPS_AT_EQUAL_THRESHOLDS
from rawls.runners.audit.rejection import ALL, CONTRACTS
from rawls.runners.audit.twins import WASTEFUL


@pytest.mark.parametrize("name", ALL)
def test_the_contract_rejects_its_twin(name: str) -> None:
    contract, twin = ALL[name]
    with pytest.raises(ContractBroken) as broken:
        CONTRACTS[contract](twin)
    assert ("its noise is too large" in str(broken.value)) is (name == WASTEFUL)
    assert COMPLAINTS.get(name, "") in str(broken.value)


def test_every_contract_with_a_check_has_a_twin() -> None:
    assert {contract for contract, _ in ALL.values()} == set(CONTRACTS)


def test_dropping_the_lowest_losses_is_private_at_equal_thresholds() -> None:
    """As the paper says; at individual ones it is a twin."""
    assert check_neighbours(DROPS_AT_EQUAL_THRESHOLDS) >= 1_500
