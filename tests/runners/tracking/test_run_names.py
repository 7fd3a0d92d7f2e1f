import json
import os
from pathlib import Path
from typing import Any

from rawls.runners.tracking.run_names import known
from tests.runners.tracking.test_tracker import config


def manifest(root: Path, target: str, runs: list[dict[str, Any]], age: int) -> None:
    path = root / "targets" / target / "paper" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"target": target, "runs": runs}), encoding="utf-8")
    os.utime(path, ns=(10**18 - age, 10**18 - age))


def run(run_id: str, label: str = "ASC", **coordinates: Any) -> dict[str, Any]:
    return {"run_id": run_id, "label": label, "dataset": "digits", "coordinates": {"epsilon": 1.0, **coordinates}}


def test_a_run_of_no_target_is_grouped_by_dataset_and_algorithm(tmp_path: Path) -> None:
    found = known(config(tmp_path, "offline"), tmp_path, "aa")
    assert (found.name, found.group) == ("asc on digits, ε=1, seed 3", "digits/asc")
    assert found.tags == ["digits", "asc", "smoke", "ε=1"]


def test_an_open_run_is_named_so(tmp_path: Path) -> None:
    asked = config(tmp_path, "offline") | {"privacy": {"epsilon": None, "noise_multiplier": None}}
    assert known(asked, tmp_path, "aa").name == "asc on digits, open, seed 3"


def test_a_run_is_named_by_its_target_and_by_what_tells_it_from_its_likes(tmp_path: Path) -> None:
    grid = [run("aa", lr=0.5, batch_size=256), run("bb", lr=0.25, batch_size=256), run("cc", "DPSGD", lr=0.125)]
    manifest(tmp_path, "asc/tuning", grid, age=0)
    manifest(tmp_path, "asc/table1", [run("aa")], age=10)
    asked = config(tmp_path, "offline")
    asked["dataset"]["provenance"] = "simulated"
    found = known(asked, tmp_path, "aa")
    assert (found.name, found.group) == ("ASC on digits, ε=1, lr=0.5, seed 3", "asc/tuning")
    assert found.tags == ["asc", "asc/tuning", "asc/table1", "digits", "smoke", "simulated", "ε=1"]
    assert known(asked, tmp_path, "cc").name == "DPSGD on digits, ε=1, seed 3"
    assert (found.method, known(asked, tmp_path, "cc").method) == ("ASC", "DPSGD")


def test_runs_of_one_setting_differ_in_the_seed_alone(tmp_path: Path) -> None:
    asked = [config(tmp_path, "offline") for _ in range(4)]
    asked[1]["seed"] = 4
    asked[2]["scale"]["name"] = "paper"  # says nothing that the other keys do not
    asked[3]["algorithm"]["reweightings"] = 51
    first, *others = [known(one, tmp_path, "aa").setting for one in asked]
    assert [other == first for other in others] == [True, True, False]
    assert first.startswith("asc on digits, ε=1 (")


def test_a_long_target_is_cut_to_what_wandb_takes(tmp_path: Path) -> None:
    manifest(tmp_path, f"mine/{'x' * 100}", [run("aa")], age=0)
    assert max(map(len, known(config(tmp_path, "offline"), tmp_path, "aa").tags)) == 64


def test_a_damaged_manifest_is_none(tmp_path: Path) -> None:
    manifest(tmp_path, "asc/table1", [{"run_id": "aa"}], age=0)
    (tmp_path / "targets" / "manifest.json").write_text("{", encoding="utf-8")
    assert known(config(tmp_path, "offline"), tmp_path, "aa").group == "digits/asc"


def test_the_history_of_an_earlier_attempt_ends_where_it_is_torn(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "aa.running"
    folder.mkdir(parents=True)
    probe = '{"step": 1, "kind": "sampling_variance", "variance": 1.0}'
    (folder / "history.jsonl").write_text(f'{probe}\n{{"step": 5, "split": "valid"}}\n{{"step": 10, "spl', "utf-8")
    assert known(config(tmp_path, "offline"), tmp_path, "aa").history == [{"step": 5, "split": "valid"}]
