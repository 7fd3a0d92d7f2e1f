"""The command that is said to train a run again makes a run of the same id."""

import shlex
from pathlib import Path

import pytest

from rawls.runners.config.compose import composer, run_id
from rawls.runners.release.command import command_of
from tests.runners.release.runs import table


@pytest.mark.parametrize(
    "overrides",
    [
        ["dataset=digits"],
        ["dataset=digits", "algorithm=dpsgd", "privacy=eps8", "seed=3", "optimizer=adam", "scale=smoke"],
        ["dataset=digits", "privacy.epsilon=null", "privacy.noise_multiplier=1.1", "model=logistic"],
        ["dataset=digits", "algorithm=idp_sgd", "owners=digits", "owners.epsilons=[3,8]"],
        ["dataset=digits", "algorithm=sgd", "schedule.max_steps=7"],
        ["dataset=digits", "dataset.provenance=simulated", "algorithm=fdpg", "algorithm.clip_norm=0.3"],
    ],
)
def test_it_makes_the_same_run(overrides: list[str]) -> None:
    config = composer()(overrides)
    command = command_of(config)
    assert command is not None
    rawls, train, *said = shlex.split(command)
    assert (rawls, train) == ("rawls", "train")
    assert run_id(composer()(said)) == run_id(config)
    secure = command_of(config, "privacy.secure=true")
    assert secure is not None and composer()(shlex.split(secure)[2:])["privacy"]["secure"] is True


def test_of_a_table_it_names_the_columns(tmp_path: Path) -> None:
    config = composer()([*table(tmp_path), "dataset.drop=[height]", "dataset.small_groups=merge"])
    command = command_of(config)
    assert command is not None
    assert run_id(composer()(shlex.split(command)[2:])) == run_id(config)


def test_there_is_none_of_what_no_file_describes() -> None:
    config = composer()(["dataset=digits"])
    theirs = {**config, "model": {"_target_": "rawls.models.architectures.parts.given.Given", "content": "0"}}
    assert command_of(theirs) is None
