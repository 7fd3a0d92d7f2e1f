import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from rawls.runners.process import news
from rawls.runners.store.checksums import sealed
from rawls.runners.store.doctor import Finding, examine
from rawls.runners.store.records import record
from rawls.runners.store.results_store import Store

CONFIG = {"algorithm": {"_target_": "rawls.algorithms.asc.Asc"}, "data": {"root": "d"}, "results": {"root": "r"}}
SUMMARY = {"dataset": "digits", "algorithm": "asc", "provenance": "real"}


def finished(root: Path, run_id: str) -> Path:
    folder = Store(root).claim(run_id, CONFIG)
    assert folder is not None
    folder.append_history({"step": 1, "wga": 0.5})
    folder.finish({**SUMMARY, "run_id": run_id}, {"releases": []}, {"device": "cpu"}, {"weights.safetensors": b"\0\1"})
    return root / "runs" / run_id


def begun(root: Path, run_id: str) -> Path:
    folder = Store(root).claim(run_id, CONFIG)
    assert folder is not None
    folder.append_history({"step": 1, "wga": 0.5})
    folder.save_checkpoint({"step": 1})
    folder.release()
    return folder.path


def garble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "runs").iterdir())


def test_a_whole_store_has_no_findings_and_stays_as_it_is(
    results_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(results_root, "aa")
    begun(results_root, "bb")
    before = names(results_root)
    assert main(["doctor", f"results.root={results_root}"]) == 0
    assert capsys.readouterr().out == f"results.root={results_root}: 1 finished runs, every file as it was written\n"
    assert names(results_root) == before


@pytest.mark.parametrize("damage", [garble, cut, Path.unlink])
@pytest.mark.parametrize(
    "name", ["summary.json", "config.yaml", "ledger.json", "history.jsonl", "weights.safetensors", "environment.json"]
)
def test_a_damaged_run_is_named_and_put_aside_whole(
    results_root: Path, name: str, damage: Callable[[Path], None]
) -> None:
    finished(results_root, "aa")
    whole, bad = finished(results_root, "ab"), finished(results_root, "bb")
    damage(bad / name)
    left = sorted(path.name for path in bad.iterdir())
    (found,) = examine(results_root)
    assert found.what.startswith(f"runs/bb/{name} is ") and found.mended
    assert found.then == "put aside; the command that asked for it trains it again"
    assert whole.is_dir() and not bad.exists()
    assert sorted(path.name for path in (results_root / "replaced" / "bb.1").iterdir()) == left
    assert list(examine(results_root)) == []


def test_another_runs_folder_under_this_name_is_found(results_root: Path) -> None:
    finished(results_root, "aa").rename(results_root / "runs" / "cc")
    (found,) = examine(results_root)
    assert found.what == "runs/cc/summary.json is of run aa"


@pytest.mark.parametrize("name", ["config.yaml", "checkpoint.pt", "history.jsonl"])
def test_an_unfinished_run_that_could_not_go_on_begins_anew(results_root: Path, name: str) -> None:
    begun(results_root, "aa")
    folder = begun(results_root, "bb")
    garble(folder / name)
    (found,) = examine(results_root)
    assert found.what.startswith(f"runs/bb.running/{name} ") and "begins anew" in found.then
    assert names(results_root) == ["aa.running"] and (results_root / "replaced" / "bb.1" / name).exists()


def test_what_is_being_trained_is_left_alone(results_root: Path) -> None:
    folder = Store(results_root).claim("aa", CONFIG)
    assert folder is not None
    folder.save_checkpoint({"step": 1})
    garble(folder.path / "checkpoint.pt")
    assert list(examine(results_root)) == []
    folder.release()
    assert len(list(examine(results_root))) == 1


def test_a_recorded_run_comes_back_from_its_record(
    results_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished(results_root, "aa")
    record(Store(results_root), "aa", tmp_path / "records")
    monkeypatch.setattr("rawls.runners.store.records.id_of", lambda _: "aa")  # this configuration is no whole one
    garble(run / "summary.json")
    (found,) = examine(results_root, tmp_path / "records")
    assert found.then == "put aside; its record takes its place"
    assert list(examine(results_root)) == [] and run.is_dir()


def test_manifests_audits_and_the_format_are_looked_at_too(results_root: Path) -> None:
    finished(results_root, "aa")
    (results_root / "store.json").write_text('{"format": ')
    manifest = results_root / "targets" / "asc" / "table1" / "digits-smoke" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({**sealed({"target": "asc/table1", "runs": []}), "runs": [1]}))
    audit = results_root / "audits" / "asc-aa.json"
    audit.parent.mkdir()
    audit.write_text(json.dumps({**sealed({"method": "asc"}), "method": "azb"}))
    of_format, of_target, of_audit = examine(results_root)
    assert of_format == Finding(what=f"{results_root / 'store.json'} cannot be read", then="written anew")
    assert of_target.what == "targets/asc/table1/digits-smoke/manifest.json is not what was written"
    assert not of_target.mended and "rawls reproduce asc/table1" in of_target.then
    assert of_audit.what == "audits/asc-aa.json is not what was written" and not audit.exists()
    assert list(examine(results_root)) == [of_target]  # the command that made it is its owner's to give


def test_it_says_what_it_did_and_ends_with_one(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(results_root, "aa")
    garble(finished(results_root, "bb") / "summary.json")
    assert main(["doctor", f"results.root={results_root}"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("runs/bb/summary.json is not what was written (its SHA-256 differs): put aside; ")
    assert told[1].endswith(f"1 faults mended, 0 left to do; what was damaged lies in {results_root / 'replaced'}")


def test_it_says_how_far_it_is(
    results_root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("aa", "bb"):
        finished(results_root, run_id)
    monkeypatch.setattr(news, "SECONDS_BETWEEN_NEWS", 0.0)
    assert main(["doctor", f"results.root={results_root}"]) == 0
    assert "looked at: 1 of 2" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"results.root={tmp_path / 'nowhere'}"]) == 2
    assert "is no folder: name one that holds runs" in capsys.readouterr().err
