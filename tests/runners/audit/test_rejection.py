"""Every twin belongs to a method, and an honest method is caught by nobody."""

from rawls.runners.audit.problem import ALGORITHMS, case_of
from rawls.runners.audit.rejection import ALL, HALF, caught, method_of, twins_of


def test_every_twin_is_shown_with_one_method_and_every_private_method_has_one() -> None:
    private = [name for name in ALGORITHMS if case_of(name).private]
    shown = [twin for name in private for twin in twins_of(name) if twin != HALF]
    assert sorted(shown) == sorted(twin for twin in ALL if twin != HALF)
    assert all(HALF in twins_of(name) for name in private)
    assert method_of(ALL["a second answer uncharged"][1]) == "fdpg"


def test_nobody_catches_an_honest_method() -> None:
    found = caught(HALF, "law", case_of("auto_s"), runs=50)
    assert found.caught_by == "" and found.says
