import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import MISSING

from rawls.accounting.fields import Count, NotNegative, Positive, Share
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import TRUSTED, build, convert, dump, name_of


class Colour(StrEnum):
    red = "red"
    green = "green"


@dataclass(frozen=True, kw_only=True)
class Base:
    kind: ClassVar[str] = "thing"
    rate: float
    count: int = 3


@dataclass(frozen=True, kw_only=True)
class Thing(Base):
    mode: Literal["fast", "exact"] = "fast"
    limit: int | None = None
    widths: tuple[int, ...] = (1, 2)
    pair: tuple[str, float] = ("a", 1.0)
    colour: Colour = Colour.red
    weights: dict[str, float] | None = None
    ranges: dict[str, tuple[float, float]] | None = None
    folder: Path = Path("here")
    on: bool = False

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"thing.count={self.count} must not be negative")


TARGET = f"{__name__}.Thing"


def test_fields_left_out_take_their_defaults() -> None:
    assert build({"_target_": TARGET, "rate": 0.5}, "thing") == Thing(rate=0.5)


def test_values_get_the_types_of_the_fields() -> None:
    node = {
        "_target_": TARGET,
        "rate": 1,
        "mode": "exact",
        "limit": 7,
        "widths": [4, 5],
        "pair": ["b", 2],
        "colour": "green",
        "weights": {"x": 1},
        "folder": "there",
        "on": True,
    }
    thing = build(node, "thing")
    assert thing == Thing(
        rate=1.0,
        mode="exact",
        limit=7,
        widths=(4, 5),
        pair=("b", 2.0),
        colour=Colour.green,
        weights={"x": 1.0},
        folder=Path("there"),
        on=True,
    )
    assert type(thing.rate) is float and type(thing.pair[1]) is float


@given(
    rate=st.floats(0, 1),
    count=st.integers(0, 9),
    limit=st.none() | st.integers(),
    widths=st.lists(st.integers(), max_size=3),
    colour=st.sampled_from(["red", "green"]),
)
def test_a_node_names_every_field_and_builds_the_same_again(**values: Any) -> None:
    thing = build({"_target_": TARGET, **values}, "thing")
    node = dump(thing)
    assert build(node, "thing") == thing
    assert node.items() >= values.items()
    assert set(node) == {"_target_", *Thing.__dataclass_fields__} - {"kind"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"count": 1}, "thing.rate has no value: set thing.rate=VALUE"),
        ({"rate": 1, "cuont": 1}, "unknown key 'thing.cuont': did you mean thing.count?"),
        ({"rate": 1, "kind": "other"}, "unknown key 'thing.kind'"),
        ({"rate": "x"}, "thing.rate=x must be a number"),
        ({"rate": True}, "thing.rate=true must be a number"),
        ({"rate": None}, "thing.rate=null must be a number"),
        ({"rate": 1, "count": 1.5}, "thing.count=1.5 must be an integer"),
        ({"rate": 1, "count": True}, "thing.count=true must be an integer"),
        ({"rate": 1, "on": 1}, "thing.on=1 must be true or false"),
        ({"rate": 1, "mode": "slow"}, "thing.mode=slow must be one of fast, exact"),
        ({"rate": 1, "limit": "x"}, "thing.limit=x must be an integer or null"),
        ({"rate": 1, "widths": 3}, "thing.widths=3 must be a list"),
        ({"rate": 1, "widths": [1, "b"]}, "thing.widths[1]=b must be a valid integer"),
        ({"rate": 1, "pair": ["b"]}, "thing.pair=['b'] must be a list of 2"),
        ({"rate": 1, "colour": "blue"}, "thing.colour=blue must be one of red, green"),
        ({"rate": 1, "weights": {"x": "y"}}, "thing.weights.x=y must be a valid number"),
        ({"rate": 1, "ranges": {"x": [1]}}, "thing.ranges.x=[1] must be a longer list"),
        ({"rate": MISSING}, "thing.rate has no value: set thing.rate=VALUE"),
        ({"rate": 1, "count": -1}, "thing.count=-1 must not be negative"),
    ],
)
def test_what_the_class_does_not_take_is_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({"_target_": TARGET, **given}, "thing")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("", "thing is not chosen: set thing=NAME"),
        ("nowhere.at.all.Thing", "thing._target_=nowhere.at.all.Thing cannot be imported"),
        ("pathlib.Pathh", "thing._target_=pathlib.Pathh cannot be imported"),
        ("pathlib.Path", "thing._target_=pathlib.Path is not a dataclass"),
        ("antigravity.Thing", "thing._target_=antigravity.Thing names a module that is not ours: if you trust it, set"),
        (
            "datasets.digits.Digits",
            "thing._target_=datasets.digits.Digits names a module that is not ours: ours",
        ),
    ],
)
def test_a_target_that_is_no_specification_is_refused(
    target: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, "nowhere,pathlib")
    with pytest.raises(ConfigError) as caught:
        build({"_target_": target}, "thing")
    assert str(caught.value).startswith(sentence)


def test_a_module_that_is_not_found_has_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUSTED, "elsewhere")
    with pytest.raises(ConfigError, match="cannot be imported: No module named") as caught:
        build({"_target_": "elsewhere.at.all.Thing"}, "thing")
    assert str(caught.value).endswith("; put elsewhere.py into the folder you are in, or name its folder in PYTHONPATH")


def test_a_module_that_nobody_trusts_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration may have come from elsewhere, and to import is to run."""
    ran = tmp_path / "ran"
    (tmp_path / "planted.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"not ours: if you trust it, set {TRUSTED}=planted"):
        build({"_target_": "planted.Thing"}, "thing")
    assert not ran.exists()
    monkeypatch.setenv(TRUSTED, "other,planted")
    with pytest.raises(ConfigError, match="cannot be imported"):
        build({"_target_": "planted.Thing"}, "thing")
    assert ran.exists()


@pytest.mark.parametrize(("group", "other"), [("dataset", "asc.Asc"), ("model", "dpsgd.DpSgd"), ("owners", "sgd.Sgd")])
def test_a_class_of_another_group_is_refused(group: str, other: str) -> None:
    with pytest.raises(ConfigError, match=f"is no {group}, which has"):
        build({"_target_": f"rawls.algorithms.{other}"}, group)


def test_a_union_keeps_an_exact_type() -> None:
    assert type(convert(1, float | int, "key")) is int
    assert type(convert(1, float | None, "key")) is float


@pytest.mark.parametrize(
    ("hint", "allowed", "refused", "sentence"),
    [
        (Positive, [1, 1e-9, 1e6], [0, -1, 1e308, 1e-300], "at least 1e-09 and at most 1e+06"),
        (NotNegative, [0, 1e6], [-1e-300, 1e7], "at least 0 and at most 1e+06"),
        (Share, [1e-9, 0.999], [0, 1, -1], "above 0 and below 1"),
        (Count, [1, 10**9], [0, -1, 10**10], "at least 1 and at most 1e+09"),
        (Count | None, [None, 1], [0], "at least 1 and at most 1e+09 or null"),
        (float, [-1e308, 0], [math.inf, -math.inf, math.nan], "a finite number"),
        (Positive, [], [math.inf, math.nan], "a finite number at least 1e-09 and at most 1e+06"),
        (Count, [], [math.nan, 1.0, 1.5, True, None, "1"], "an integer at least 1 and at most 1e+09"),
    ],
)
def test_a_range_is_part_of_a_type(hint: Any, allowed: list[Any], refused: list[Any], sentence: str) -> None:
    assert [convert(value, hint, "key") for value in allowed] == allowed
    for value in refused:
        with pytest.raises(ConfigError) as caught:
            convert(value, hint, "key")
        assert str(caught.value) == f"key={'null' if value is None else str(value).lower()} must be {sentence}"


def test_a_specification_is_called_after_its_file() -> None:
    assert name_of({"_target_": "rawls.algorithms.azb_weak.AzbWeak"}) == "azb_weak"
