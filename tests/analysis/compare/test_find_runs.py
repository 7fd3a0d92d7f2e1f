from pathlib import Path

import pytest

from rawls.analysis import load
from rawls.analysis.compare.find_runs import Names, check_keys, narrowed
from rawls.analysis.read import settings
from tests.analysis.compare.two_sides import sweep, write_configured
from tests.analysis.stores import run_id, write_unfinished


def names(root: Path, within: str = "") -> Names:
    return Names(load(root), within)


@pytest.fixture
def store(results_root: Path) -> Path:
    """Two targets: Table 1, and the same at another budget in two variants."""
    sweep(results_root)
    for epsilon, variant in ((2.0, "eps2"), (4.0, "eps4")):
        sweep(results_root, "asc/fig1", variant=variant, epsilon=epsilon)
    write_unfinished(results_root, "0123456789abcdef", "running", label="azb")
    return results_root


@pytest.mark.parametrize(
    ("name", "number", "what"),
    [
        ("asc/table1", 6, "asc/table1 default"),
        ("asc/fig1/eps2", 6, "asc/fig1 eps2"),
        ("asc", 9, "algorithm asc"),
        ("ASC", 9, "method ASC"),
        ("azb", 1, "algorithm azb"),
        (run_id("asc", 1, [])[:6], 1, f"run {run_id('asc', 1, [])}, asc on unbalanced_mnist, seed 1"),
        (run_id("asc", 1, []), 1, f"run {run_id('asc', 1, [])}, asc on unbalanced_mnist, seed 1"),
    ],
)
def test_what_a_name_means(store: Path, name: str, number: int, what: str) -> None:
    side = names(store).side(name)
    assert (side.name, len(side.runs), side.what) == (name, number, what)
    assert side.sweep == ("/" in name)


def test_a_manifest_elsewhere_is_a_sweep(store: Path) -> None:
    path = store / "targets/asc/fig1/eps4/manifest.json"
    assert names(store).side(str(path)).what == "asc/fig1 eps4"


def test_within_a_target_a_name_is_of_its_runs_alone(store: Path) -> None:
    for name in ("ASC", "asc"):
        side = names(store, "asc/table1").side(name)
        assert len(side.runs) == 3
        assert side.what == f"{'method ASC' if name == 'ASC' else 'algorithm asc'} of asc/table1 default"
    with pytest.raises(ValueError, match="unknown name 'azb' of asc/table1 default"):
        names(store, "asc/table1").side("azb")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("DPSG", r"unknown name 'DPSG': did you mean DPSGD\? \(choose from ASC, DPSGD, .* beginning of a run's id\)"),
        ("asc/tabel1", r"unknown name 'asc/tabel1': did you mean asc/table1\? \(choose from asc/fig1, asc/table1\)"),
        ("asc/fig1", "made in 2 variants: choose one of asc/fig1/eps2, asc/fig1/eps4"),
        ("asc/fig1/eps3", r"did you mean asc/fig1/eps[24]\?"),
        ("0123456789abcdeg", "unknown name"),
        ("abc", "unknown name 'abc'"),
        ("none/manifest.json", "does not exist"),
    ],
)
def test_a_name_that_means_nothing_or_several(store: Path, name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        names(store).side(name)


def test_the_beginning_of_several_ids(results_root: Path) -> None:
    for run in ("abcd0", "abcd1"):
        write_configured(results_root, run, algorithm="asc", seed=0, summary={})
    with pytest.raises(ValueError, match=r"2 runs begin with abcd \(abcd0, abcd1\)"):
        names(results_root).side("abcd")
    assert list(names(results_root).side("abcd1").runs["run_id"]) == ["abcd1"]


def test_an_unknown_target_and_an_empty_store(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown name 'asc/tabl': did you mean asc/table1\?"):
        names(store, "asc/tabl")
    with pytest.raises(ValueError, match="holds no runs; say where they are, results.root=FOLDER"):
        names(tmp_path / "none").side("asc")


def test_a_damaged_manifest_hides_its_own_names_only(store: Path) -> None:
    (store / "targets/asc/fig1/eps4/manifest.json").write_text("{")
    assert len(names(store).side("ASC").runs) == 6
    with pytest.raises(ValueError, match="is not valid JSON"):
        names(store).side("asc/fig1/eps4")


def left(root: Path, key: str, text: str, *sides: str) -> list[int]:
    known = settings.load(root, load(root).runs["run_id"])
    found = [names(root).side(name) for name in sides]
    return [len(side.runs) for side in narrowed(found, key, text, known)]


def test_values_choose_among_runs(store: Path) -> None:
    assert left(store, "privacy.epsilon", "2", "asc", "dpsgd") == [3, 3]
    assert left(store, "privacy.epsilon", "1,2.0", "asc", "dpsgd") == [6, 6]
    assert left(store, "seed", "0,2", "asc", "asc/table1") == [6, 4]
    assert left(store, "dataset", "unbalanced_mnist", "asc", "azb") == [9, 1]
    assert left(store, "scale", "paper", "asc", "dpsgd") == [9, 9]


def test_a_hyper_parameter_is_chosen_where_there_is_a_choice(store: Path) -> None:
    write_configured(store, "other", algorithm="asc", seed=0, summary={}, group_lr=0.3)
    assert left(store, "algorithm.group_lr", "0.3", "asc", "dpsgd") == [1, 9]
    assert left(store, "optimizer.lr", "0.5", "asc", "dpsgd") == [10, 9]
    assert left(store, "algorithm.group_lr", "0.15", "asc/table1", "asc") == [6, 9]
    with pytest.raises(ValueError, match=r"neither side has a run with algorithm.group_lr=7: choose from 0\.15, 0\.3"):
        left(store, "algorithm.group_lr", "7", "asc", "dpsgd")


def test_what_is_no_hyper_parameter_must_be_met_by_both(store: Path) -> None:
    write_configured(store, "other", algorithm="azb_weak", seed=0, summary={}, epsilon=8.0)
    with pytest.raises(ValueError, match=r"asc has no run with privacy.epsilon=8: choose from 1, 2, 4"):
        left(store, "privacy.epsilon", "8", "asc", "azb_weak")


def test_unknown_keys_are_told_the_nearest(store: Path) -> None:
    known = settings.load(store, load(store).runs["run_id"])
    check_keys(["dataset", "seed", "scale", "optimizer.lr"], known)
    for key, near in (("lr", "optimizer.lr"), ("privacy.epsilo", "privacy.epsilon"), ("datset", "dataset")):
        with pytest.raises(ValueError, match=rf"unknown key '{key}': did you mean {near}\?"):
            check_keys([key], known)
    with pytest.raises(ValueError, match="unknown key 'zzz': choose from "):
        check_keys(["zzz"], known)
