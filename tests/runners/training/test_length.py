from hypothesis import given
from hypothesis import strategies as st

from rawls.runners.training.length import is_evaluated


@given(steps=st.integers(1, 300), evaluations=st.integers(1, 400))
def test_evaluations_are_those_of_the_whole_list(steps: int, evaluations: int) -> None:
    naive = {round(steps * (point + 1) / evaluations) for point in range(evaluations)}
    found = {step for step in range(1, steps + 1) if is_evaluated(step, steps, evaluations)}
    assert found == naive - {0} and max(found) == steps


def test_any_number_of_them_takes_no_room() -> None:
    """As a list, a thousand million of them took 60 GB before the first step."""
    assert is_evaluated(1, 1000, 10**9) and is_evaluated(1000, 1000, 10**9)
    assert not is_evaluated(1, 10**9, 1000) and is_evaluated(10**9, 10**9, 1000)
