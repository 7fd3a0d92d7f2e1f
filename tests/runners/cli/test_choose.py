"""Which method to take for one's own module and arrays, from Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rawls
from rawls.runners.config.errors import ConfigError
from tests.runners.test_fit import GROUPS, INPUTS, LABELS, PARTS, module

METHODS = ["dpsgd", "asc", "dp_oco_worst_group", "sgd"]
SHORT: dict[str, Any] = {"groups": GROUPS, "parts": PARTS, "epochs": 2, "batch_size": 60, "seeds": 2}


@pytest.fixture(scope="module")
def ranking() -> rawls.Ranking:
    torch.set_num_threads(2)
    found = rawls.choose(lambda: module(3), (INPUTS, LABELS), epsilon=5, methods=METHODS, **SHORT)
    assert torch.get_num_threads() == 2, "as the caller had it"
    return found


def test_methods_with_privacy_stand_by_validation_and_others_below(ranking: rawls.Ranking) -> None:
    table = ranking.table
    private = table[table["private"]]
    assert list(table["rank"]) == [1, 2, 0] and set(private["method"]) == {"DP-SGD", "ASC"}
    assert list(private["valid_wga"]) == sorted(private["valid_wga"], reverse=True)
    assert (private["epsilon_proven"] <= 5).all() and (private["epsilon_proven"] > 4.9).all()
    assert table["epsilon_proven"].isna().tolist() == [False, False, True] and (table["n"] == 2).all()


def test_what_does_not_fit_is_left_out_with_its_sentence(ranking: rawls.Ranking) -> None:
    assert list(ranking.left_out) == ["DP-OCO on given"] and "linear model" in ranking.left_out["DP-OCO on given"]
    assert "Left out, DP-OCO" in str(ranking) and ranking.advice in str(ranking)
    assert ranking._repr_markdown_() == str(ranking) and ranking.folder is None


def test_the_first_method_trained_once_more_is_the_model_that_the_table_counts(ranking: rawls.Ranking) -> None:
    first = ranking.table.iloc[0]
    models = [ranking.fit(seed=seed) for seed in (0, 1)]
    for part, name in (("valid", "valid_wga"), ("test", "test_wga")):
        assert np.mean([one.accuracy[part]["wga"] for one in models]) == pytest.approx(first[name] / 100, abs=1e-12)
    assert models[0].epsilon == pytest.approx(first["epsilon_proven"])
    assert ranking.fit(secure=True).epsilon == models[0].epsilon


def test_a_kept_ranking_lies_where_the_dashboard_finds_it_and_other_arrays_beside_it(tmp_path: Path) -> None:
    def chosen(labels: np.ndarray) -> Any:
        return rawls.choose(
            module(), (INPUTS, labels), epsilon=5, methods=["dpsgd"], overrides=["optimizer.lr=0.1"], **SHORT,
            results=tmp_path,
        )  # fmt: skip

    first, other = chosen(LABELS), chosen(np.roll(LABELS, 1))
    assert first.folder.parent == other.folder.parent == tmp_path / "targets" / "choose"
    assert first.folder != other.folder and len(rawls.load(tmp_path).runs) == 4
    assert first.text.startswith((first.folder / "table.md").read_text(encoding="utf-8").rstrip()[:40])
    moments = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    again = chosen(LABELS)
    assert again.table.equals(first.table), "asked again, nothing is trained"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == moments


def test_without_a_method_with_privacy_there_is_none_to_take() -> None:
    once: dict[str, Any] = SHORT | {"seeds": 1, "overrides": ["optimizer.lr=0.1"]}
    found = rawls.choose(module(), (INPUTS, LABELS), epsilon=5, methods=["sgd"], **once)
    assert found.method is None and found.overrides == () and list(found.table["rank"]) == [0]
    with pytest.raises(ConfigError, match="no method with privacy could be ranked"):
        found.fit()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"parts": None, "validation": 0.0}, "ranked by validation rows, and there are none: give validation="),
        ({"parts": np.where(PARTS == "valid", "test", PARTS)}, "ranked by validation rows, and there are none"),
        ({"seeds": 0}, "seeds=0 must be 1 or more"),
        ({"methods": ["azc"]}, "azc"),
        ({"epsilon": -1.0}, "privacy.epsilon"),
        ({"methods": ["dp_oco_worst_group"]}, "nothing here can be trained: DP-OCO: .*linear model"),
        ({"groups": GROUPS[1:]}, "groups are of shape"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_trained(wrong: dict[str, Any], sentence: str) -> None:
    asked: dict[str, Any] = {"methods": ["dpsgd"], "epsilon": 5.0} | SHORT | wrong
    with pytest.raises(ConfigError, match=sentence):
        rawls.choose(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), (INPUTS, LABELS), **asked)
