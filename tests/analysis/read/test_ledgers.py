import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawls import analysis
from rawls.accounting.events import Everyone, GaussianEvent, Poisson
from rawls.accounting.mechanism.ledger import Line
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import (
    Population,
    StratifiedWithoutReplacement,
    UniformPoisson,
    WholeFold,
    WholeTrainingSet,
)
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.tree import Tree
from rawls.analysis.read import cache, ledgers
from tests.analysis.stores import write_json, write_run, write_unfinished

SIZES = Population((100, 50, 10))
ASSUMPTIONS = ["group sizes and group membership are public"]


def line(release: Release, *, first_step: int = 0, count: int = 1) -> dict[str, Any]:
    """As accounting writes it."""
    events = tuple(release.event(group) for group in range(3))
    return Line(release.to_dict(), events, first_step, first_step + count - 1, count).to_dict()


def ledger() -> dict[str, Any]:
    batches = StratifiedWithoutReplacement(SIZES, (20, 5, 0))
    gradient = Release(name="gradient", law=batches, bounds=(1.0, 2.0, 1.0), noise_std=8.0)
    losses = Release(name="group losses", law=WholeTrainingSet(SIZES), bounds=(0.5, 0.5, 0.5), noise_std=4.0)
    charged = Release(
        name="gradient",
        law=UniformPoisson(SIZES, 0.25),
        bounds=(1.0, 1.0, 1.0),
        noise_std=2.0,
        charged_as=GaussianEvent(Poisson(0.5), 1.5),
    )
    lines = [line(gradient, count=10), line(losses), line(charged, first_step=10, count=3)]
    return {"cells": SIZES.to_dict(), "releases": lines, "assumptions": ASSUMPTIONS}


def write_ledger(root: Path, run: str, content: dict[str, Any]) -> None:
    write_json(root / "runs" / run / "ledger.json", content)


def test_a_release_is_one_row_with_its_law_noise_and_count(results_root: Path) -> None:
    write_run(results_root, "a", plan={"epsilon_per_group": [0.9, 1.0, 14.5], "covered_groups": [0, 1]})
    write_ledger(results_root, "a", ledger())
    rows = analysis.load(results_root).ledger
    assert list(rows["name"]) == ["gradient", "group losses", "gradient"]
    assert list(rows["law"]) == ["stratified_without_replacement", "whole_training_set", "uniform_poisson"]
    assert list(rows["count"]) == [10, 1, 3]
    assert list(rows["first_step"]) == [0, 0, 10]
    assert list(rows["line"]) == [0, 1, 2]
    np.testing.assert_array_equal(rows["noise_multiplier"][0], [8.0, 4.0, math.nan])  # no row of the third is sampled
    np.testing.assert_array_equal(rows["sampling_rate"][0], [0.2, 0.1, math.nan])
    np.testing.assert_array_equal(rows["noise_multiplier"][1], [8.0, 8.0, 8.0])
    np.testing.assert_array_equal(rows["sampling_rate"][1], [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(rows["noise_multiplier"][2], [1.5, 1.5, 1.5])  # as charged
    np.testing.assert_array_equal(rows["sampling_rate"][2], [0.5, 0.5, 0.5])
    assert list(rows["charged_as"].isna()) == [True, True, False]
    assert rows["charged_as"][2] == "gaussian 1.5, poisson at 0.5"
    assert list(rows["noise"]) == ["gaussian"] * 3
    assert [list(answers) for answers in rows["answers"]] == [[], [], []]


def test_answers_from_one_draw_are_one_release_with_the_multiplier_of_all(results_root: Path) -> None:
    counts = Answer(name="counts", bounds=(1.0, 1.0, 1.0), noise_std=4.0)
    looked = Release(name="gradient", law=UniformPoisson(SIZES, 0.25), bounds=(1.0,) * 3, noise_std=3.0, look=(counts,))
    laplace = Release(name="test", law=WholeTrainingSet(SIZES), bounds=(2.0, 2.0, 0.0), noise_std=4.0, noise="laplace")
    write_run(results_root, "a")
    write_ledger(
        results_root,
        "a",
        {"cells": SIZES.to_dict(), "releases": [line(looked, count=5), line(laplace)], "assumptions": []},
    )
    rows = analysis.load(results_root).ledger
    assert [list(answers) for answers in rows["answers"]] == [["counts"], []]
    np.testing.assert_allclose(rows["noise_multiplier"][0], [1 / math.hypot(1 / 3, 1 / 4)] * 3)
    assert list(rows["noise"]) == ["gaussian", "laplace"]
    # Laplace noise of std 4 has scale 4 / sqrt(2), which is sqrt(2) times the bound; the third cell is not touched.
    np.testing.assert_allclose(rows["noise_multiplier"][1], [math.sqrt(2), math.sqrt(2), math.nan])


def test_a_tree_is_one_release_with_the_noise_of_all_nodes_above_a_row(results_root: Path) -> None:
    """9 rounds: a row lies in 5 nodes."""
    population = Population((8, 8), groups=(0, 0), folds=(0, 1))
    law, tree = WholeFold(population, 0), Tree(steps=9)
    release = SinglePass(name="sums", law=law, bounds=(0.5, 0.0), noise_std=3.0, rounds=9, tree=tree)
    made = Line(release.to_dict(), tuple(release.event(cell) for cell in (0, 1)), 0, 8, 1, [4, 0]).to_dict()
    write_run(results_root, "a")
    write_ledger(results_root, "a", {"cells": population.to_dict(), "releases": [made], "assumptions": ASSUMPTIONS})
    (row,) = analysis.load(results_root).ledger.to_dict("records")
    event = release.event(0)
    assert isinstance(event, GaussianEvent) and row["count"] == 1
    np.testing.assert_allclose(row["noise_multiplier"], [event.noise_multiplier, math.nan])


def test_what_cannot_be_read_has_no_rows(results_root: Path) -> None:
    for run in "abcde":
        write_run(results_root, run)
    write_ledger(results_root, "a", ledger())
    (results_root / "runs" / "b" / "ledger.json").write_text('{"releases": [')
    write_ledger(results_root, "c", {"releases": [{"name": "gradient"}], "assumptions": []})
    write_ledger(results_root, "d", {"releases": [], "assumptions": []})  # plan only
    write_unfinished(results_root, "f", "running")
    assert set(analysis.load(results_root).ledger["run_id"]) == {"a"}


def test_an_rdp_event_and_endless_noise_are_no_numbers_that_mislead(results_root: Path) -> None:
    content = ledger()
    content["releases"][0]["events"] = [{"kind": "rdp", "order": 18.0, "epsilon": 0.1, "count": 1}, None]
    content["releases"][1]["events"] = [GaussianEvent(Everyone(), math.inf).to_dict()]
    write_run(results_root, "a")
    write_ledger(results_root, "a", content)
    rows = analysis.load(results_root).ledger
    assert np.isnan(rows["noise_multiplier"][0]).all() and np.isnan(rows["sampling_rate"][0]).all()
    assert list(rows["noise_multiplier"][1]) == [math.inf]


def test_ledgers_are_read_only_when_asked_for_and_once(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(results_root, "a")
    write_ledger(results_root, "a", ledger())
    read: list[str] = []
    lines = ledgers._lines

    def note(run_id: str, folder: Path) -> list[dict[str, Any]]:
        read.append(run_id)
        return lines(run_id, folder)

    monkeypatch.setattr(ledgers, "_lines", note)
    store = analysis.load(results_root)
    assert read == []
    assert len(store.ledger) == len(store.ledger) == 3
    assert read == ["a"]


def test_what_is_kept_is_what_the_files_say(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FEW", 0)
    monkeypatch.setattr(cache, "SETTLED_NANOSECONDS", -(10**15))
    for run in "abc":
        write_run(results_root, run)
        write_ledger(results_root, run, ledger())
    (results_root / "runs" / "b" / "ledger.json").unlink()
    cold = analysis.load(results_root).ledger
    assert (results_root / "cache" / "ledger.arrow").is_file()
    kept = analysis.load(results_root).ledger
    assert cold.to_json() == kept.to_json()
    write_ledger(results_root, "b", ledger())
    assert list(analysis.load(results_root, ["b", "a"]).ledger["run_id"]) == ["b"] * 3 + ["a"] * 3
