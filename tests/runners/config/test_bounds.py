"""No number that makes no sense gets as far as a plan: one sentence names the key, the value and what is allowed."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from omegaconf import MISSING

from rawls.runners.config.compose import CONF, Composer, choices, compose
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.schema import SPECS, Optimizer, Privacy, Schedule
from rawls.runners.config.specifications import build, convert

NO_FLOAT = (
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, -1.0]) | st.floats(1e7) | st.floats(max_value=-1)
)
NO_COUNT = st.sampled_from([0, -1, 10**30, 1.5, math.nan, True, "x"]) | st.integers(max_value=0) | st.floats()


def kinds(hint: Any) -> set[Any]:
    """The plain types that a hint comes to."""
    return set().union(*map(kinds, get_args(hint))) if get_args(hint) else {hint}


def numbers(group: str, name: str) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The node of a YAML and each of its fields that holds a number, with its type."""
    node = yaml.safe_load((CONF / group / f"{name}.yaml").read_text("utf-8"))
    node.pop("defaults", None)  # Hydra's
    node = {key: "a" if value == MISSING else value for key, value in node.items()}
    for key, hint in get_type_hints(type(build(node, group)), include_extras=True).items():
        if key in node and {int, float} & kinds(hint):
            yield node, key, hint


FIELDS = [
    pytest.param(group, node, key, hint, id=f"{group}={name}-{key}")
    for group in SPECS
    for name in choices(group)
    for node, key, hint in numbers(group, name)
]
SECTIONS = [
    pytest.param(f"{section}.{field.name}", field.metadata.get("must", field.type), id=f"{section}.{field.name}")
    for section, schema in (("privacy", Privacy), ("optimizer", Optimizer), ("schedule", Schedule))
    for field in dataclasses.fields(schema)
    if {int, float} & kinds(field.type)
]


def test_there_are_fields() -> None:
    assert len(FIELDS) >= 25 and len(SECTIONS) >= 10


@pytest.mark.parametrize(("group", "node", "key", "hint"), FIELDS)
@given(data=st.data())
def test_every_number_of_a_specification_has_its_range(
    group: str, node: dict[str, Any], key: str, hint: Any, data: st.DataObject
) -> None:
    bad = data.draw(NO_FLOAT if float in kinds(hint) else NO_COUNT)
    assume(key != "half_of" or bad is False or bad != 0)  # a seed, and 0 is one
    with pytest.raises(ConfigError) as caught:
        build({**node, key: bad}, group)
    assert_says(str(caught.value), f"{group}.{key}", bad)


@pytest.mark.parametrize(("key", "hint"), SECTIONS)
@given(data=st.data())
def test_every_number_of_the_schema_has_its_range(key: str, hint: Any, data: st.DataObject) -> None:
    bad = data.draw(NO_FLOAT if float in kinds(hint) else NO_COUNT)
    with pytest.raises(ConfigError) as caught:
        convert(bad, hint, key)
    assert_says(str(caught.value), key, bad)


def assert_says(sentence: str, key: str, value: Any) -> None:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    assert sentence.startswith(f"{key}={shown} must be ")
    assert sentence.count("\n") == 0


@pytest.mark.parametrize(
    "text",
    [
        *(f"algorithm.clip_norm={value}" for value in ("0", "nan", "inf", "-1", "1e308", "1e-300")),
        *(f"algorithm.group_lr={value}" for value in ("-1", "nan", "1e308")),
        *("algorithm.epochs_per_update=0", "algorithm.loss_clip=-1", "algorithm.release_ratio=nan"),
        *("algorithm.release_ratio=0", "optimizer.weight_decay=inf", "optimizer.weight_decay=nan"),
        *("optimizer.lr=inf", "optimizer.momentum=nan", "privacy.epsilon=inf", "privacy.delta=nan", "seed=1e30"),
        *("dataset.max_examples=-1", "schedule.max_steps=0", "schedule.epochs=100000000000"),
    ],
)
def test_a_command_that_asks_for_it_is_told(text: str) -> None:
    """What the issue tried by hand, through the composer that sweeps use and through the plain one."""
    key, _, value = text.partition("=")
    for composed in (lambda: Composer()((text,)), lambda: compose([text])):
        with pytest.raises(ConfigError) as caught:
            composed()
        assert str(caught.value).startswith(f"{key}=") and " must be " in str(caught.value)
