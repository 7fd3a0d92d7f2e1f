import pytest

from rawls.analysis.pages.dashboard.parts import duration, number, plain


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "–"), (float("nan"), "–"), (12.4, "12 s"), (190, "3 min 10 s"), (7500, "2 h 05 min"), (59.7, "1 min 00 s")],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (float("nan"), "–"), (0.99999, "1"), (1.02e-5, "1.02e-05"), (11580, "1.158e+04")],
)
def test_numbers(value: float | None, expected: str) -> None:
    assert number(value) == expected


def test_names_in_a_sentence() -> None:
    assert [plain(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "nothing",
        "a",
        "a and b",
        "a, b and c",
    ]
