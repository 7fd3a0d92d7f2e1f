"""`rawls.budget` answers as the command does."""

import json

import pytest

import rawls
from rawls.runners.cli import budget as command
from rawls.runners.config.errors import ConfigError

RUN = ["--population", "5000", "--batch", "50", "--steps", "300", "--releases", "4"]


@pytest.mark.parametrize("question", ["epsilon", "noise_multiplier"])
def test_it_answers_as_the_command_does(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*RUN, f"--{question.replace('_', '-')}", "1.5"]) == 0
    said = json.loads(capsys.readouterr().out)
    asked: dict[str, float] = {question: 1.5}
    assert rawls.budget(population=5000, batch=50, steps=300, releases=4, **asked) == said  # type: ignore[arg-type]


def test_what_one_question_finds_the_other_gives_back() -> None:
    run = {"population": 5000, "batch": 50, "steps": 300}
    noise = rawls.budget(epsilon=2, **run)["noise_multiplier"]  # type: ignore[arg-type]
    assert rawls.budget(noise_multiplier=noise, **run)["epsilon"] == pytest.approx(2, rel=1e-4)  # type: ignore[arg-type]


def test_of_a_run_it_gives_the_plan() -> None:
    plan = rawls.budget("algorithm=dpsgd", "dataset=digits", "privacy.epsilon=3", "scale=smoke")
    assert plan["algorithm"] == "dpsgd" and 2.9 < plan["epsilon"] <= 3


@pytest.mark.parametrize(
    ("overrides", "numbers", "sentence"),
    [
        ([], {"steps": 3}, "give either epsilon="),
        ([], {"epsilon": 1, "noise_multiplier": 1, "steps": 3}, "give either epsilon="),
        ([], {"epsilon": 1}, "give steps="),
        ([], {"epsilon": 1, "steps": 3}, "sampling without_replacement needs population and batch"),
        ([], {"epsilon": 1, "steps": 3, "population": 10, "batch": 5, "group_size": 0}, "^group_size must be positive"),
        (["dataset=digits"], {"epsilon": 1}, "give no numbers beside"),
    ],
)
def test_what_is_wrong_is_a_sentence(overrides: list[str], numbers: dict[str, float], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        rawls.budget(*overrides, **numbers)  # type: ignore[arg-type]
