import json
from pathlib import Path

import pytest

from rawls.runners.store.stored import FORMAT, Sweep, format_of, manifests, mark_of, sweeps, told_by, variants


@pytest.mark.parametrize(("text", "told"), [(None, None), ('{"format": 2}', 2), ('{"format": 9}', 9)])
def test_a_store_says_its_format_or_nothing(text: str | None, told: int | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "store.json").write_text(text)
    assert format_of(tmp_path) == told


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": null}', '{"format": "two"}'])
def test_a_format_that_cannot_be_read_names_its_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(ValueError, match=rf'store\.json cannot be read: it should say {{"format": {FORMAT}}}'):
        format_of(tmp_path)


def test_manifests_are_found_by_target_and_by_variant(tmp_path: Path) -> None:
    for name in ("mine/smoke", "asc/fig1/paper", "asc/fig1/laptop"):
        (tmp_path / "targets" / name).mkdir(parents=True)
        (tmp_path / "targets" / name / "manifest.json").touch()
    assert list(manifests(tmp_path)) == ["asc/fig1/laptop", "asc/fig1/paper", "mine/smoke"]
    assert {target: len(paths) for target, paths in variants(tmp_path).items()} == {"asc/fig1": 2, "mine": 1}
    assert manifests(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("provenance", "mark"),
    [
        ("real", ""),
        ("plan only", ""),
        ("simulated", "SIMULATED DATA"),
        ("stand-in", "STAND-IN"),
        ("stand-in data", "STAND-IN DATA"),
        ("stand-in data+stand-in", "STAND-IN DATA, STAND-IN"),
        ("subset+stand-in", "SUBSET DATA, STAND-IN"),
    ],
)
def test_what_is_not_the_papers_is_marked(provenance: str, mark: str) -> None:
    assert mark_of(provenance) == mark


def test_what_does_not_tell_all_of_a_sweep_is_none(tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    told = {"token": "a", "host": "h", "pid": 1, "command": "c", "total": 2, "run_ids": ["ab", "../x"], "since": 0.5}
    (tmp_path / "sweeps" / "a.json").write_text(json.dumps(told))
    (tmp_path / "sweeps" / "b.json").write_text(json.dumps({"token": "b"}))
    assert sweeps(tmp_path) == [Sweep(token="a", host="h", pid=1, command="c", total=2, run_ids=("ab",), since=0.5)]


@pytest.mark.parametrize(("age", "lives"), [(59.0, True), (61.0, False)])
def test_a_process_that_no_lock_tells_of_is_judged_by_its_last_beat(age: float, lives: bool, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"boot_id": "of another machine", "locked": true}')
    beat = (tmp_path / "t.json").stat().st_mtime
    assert (told_by(tmp_path, "t", lambda _: beat + age) is not None) is lives
