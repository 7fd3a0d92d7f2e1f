import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from rawls.runners.cli import commands
from rawls.runners.config.errors import ConfigError
from rawls.runners.tracking.wandb_workspace import Shown, look, workspace
from tests.tree import ROOT

# The package itself uses what pydantic would rather not have.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")
SHOWN = Shown(
    project="rawls",
    entity=None,
    target="asc/table1",
    group_by="method",
    group_names=("land", "water"),
    evaluated=("land", "water"),
    has_weights=True,
)
KEY = "0" * 40


def stored(
    root: Path, run_id: str, *, mode: str = "offline", weights: bool = False, names: tuple[str, ...] = ()
) -> None:
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    tracking = {"mode": mode, "project": f"project of {run_id}", "entity": None}
    (folder / "config.yaml").write_text(yaml.safe_dump({"tracking": tracking}), encoding="utf-8")
    (folder / "summary.json").write_text(
        json.dumps({"dataset": "digits", "algorithm": "asc", "group_names": names}), encoding="utf-8"
    )
    row = {"step": 1, "split": "valid", "group_weights": [0.5, 0.5] if weights else None}
    (folder / "history.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    os.utime(folder, ns=(0, len(list(folder.parent.iterdir()))))


def planned(root: Path, variant: str, *runs: tuple[str, str, int]) -> None:
    manifest = root / "targets" / "asc" / "table1" / variant / "manifest.json"
    manifest.parent.mkdir(parents=True)
    rows = [{"run_id": run_id, "label": label, "seed": seed} for run_id, label, seed in runs]
    manifest.write_text(json.dumps({"runs": rows}), encoding="utf-8")


def panels(shown: Shown) -> dict[str, list[dict[str, Any]]]:
    """The panels by section, as they are sent."""
    section = workspace(shown, "me")._to_model().spec.model_dump(by_alias=True, exclude_none=True)["section"]
    return {one["name"]: one["panels"] for one in section["panelBankConfig"]["sections"]}


def test_every_panel_compares_by_method_with_the_spread_over_seeds() -> None:
    found = panels(SHOWN)
    metrics = {
        name: [panel["config"]["metrics"] for panel in of_section if "metrics" in panel["config"]]
        for name, of_section in found.items()
    }
    assert metrics == {
        "Test: worst group (WGA) and mean of groups (AVG)": [["test/wga"], ["test/avg"]],
        "Validation: WGA and AVG": [["valid/wga"], ["valid/avg"]],
        "Groups: accuracy on validation": [["valid/accuracy/0"], ["valid/accuracy/1"]],
        "Groups: accuracy on test": [["test/accuracy/0"], ["test/accuracy/1"]],
        "Privacy: ε planned and spent": [
            ["plan/epsilon", "ledger_epsilon"],
            ["plan/epsilon_per_group/0", "ledger_epsilon_per_group/0"],
            ["plan/epsilon_per_group/1", "ledger_epsilon_per_group/1"],
        ],
        "Weights of groups": [["group_weights/0"], ["group_weights/1"]],
    }
    drawn = [panel for of_section in found.values() for panel in of_section]
    (scatter,) = [panel["config"] for panel in drawn if panel["viewType"] == "Scatter Plot"]
    assert (scatter["xAxis"], scatter["yAxis"]) == ("summary:test/avg", "summary:test/wga")
    grouped = {
        (panel["viewType"], *(panel["config"][key] for key in ("groupBy", "groupAgg", "groupArea", "aggregate")))
        for panel in drawn
        if panel["viewType"] != "Scatter Plot"
    }
    assert grouped == {
        (kind, "method.value", "mean", "stddev", True) for kind in ("Bar Chart", "Run History Line Plot")
    }
    assert drawn[-1]["config"]["chartTitle"] == "Weight: water"


def test_the_metrics_are_those_that_runs_log() -> None:
    from rawls.runners.tracking.tracker import curves, flat

    row = {
        "step": 1,
        "epoch": 1.0,
        "split": "valid",
        "wga": 0.5,
        "avg": 0.5,
        "accuracy": [0.5, 0.5],
        "group_weights": [1, 1],
    }
    per_group = {"epsilon": 1.0, "epsilon_per_group": [1.0, 1.0]}
    summary = {"test": row, "plan": per_group, "ledger_epsilon": 1.0, "ledger_epsilon_per_group": [1.0, 1.0]}
    logged = {name for name, _ in (*curves(row), *flat(summary))}
    asked = {
        metric
        for of_section in panels(SHOWN).values()
        for one in of_section
        for metric in one["config"].get("metrics", [])
    }
    assert asked <= logged


def test_the_view_shows_the_runs_of_the_target_and_no_drawn_targets() -> None:
    (runs,) = workspace(SHOWN, "me")._to_model().spec.section.run_sets
    told = [(one["key"]["name"], one["op"], one["value"]) for one in runs.filters["filters"]]
    assert told == [("jobType", "=", "train"), ("tags", "IN", ["asc/table1"])]
    assert [key.name for key in runs.grouping] == ["method.value"]


def test_all_runs_are_compared_by_setting_and_without_weights_there_is_no_section_for_them() -> None:
    every = Shown(
        project="p", entity="e", target=None, group_by="setting", group_names=(), evaluated=(), has_weights=False
    )
    view = workspace(every, "e")
    (runs,) = view._to_model().spec.section.run_sets
    assert [one["key"]["name"] for one in runs.filters["filters"]] == ["jobType"]
    assert [key.name for key in runs.grouping] == ["setting.value"]
    assert view.name == "rawls methods"
    assert [section.name.partition(":")[0] for section in view.sections] == ["Test", "Validation", "Privacy"]


def test_the_newest_mirrored_run_says_the_project_and_all_say_the_groups(tmp_path: Path) -> None:
    stored(tmp_path, "aa", names=("land", "water"))
    stored(tmp_path, "bb", names=("land", "air", "fire"), weights=True)
    stored(tmp_path, "cc", mode="off")
    assert look(tmp_path, None) == Shown(
        project="project of bb", entity=None, target=None, group_by="setting",
        group_names=("land", "group 1", "fire"),
        evaluated=("land", "group 1", "fire"), has_weights=True,
    )  # fmt: skip


def test_a_target_is_shown_by_method_while_a_method_has_one_run_of_a_seed(tmp_path: Path) -> None:
    for run_id in ("aa", "bb", "cc", "dd"):
        stored(tmp_path, run_id, weights=run_id == "dd", names=("land",))
    planned(tmp_path, "smoke", ("aa", "ASC", 0), ("bb", "ASC", 1), ("cc", "DPSGD", 0), ("ee", "DPSGD", 1))
    shown = look(tmp_path, "asc/table1")
    assert (shown.project, shown.group_by, shown.has_weights) == ("project of cc", "method", False)
    planned(tmp_path, "again", ("aa", "ASC", 0))
    assert look(tmp_path, "asc/table1").group_by == "method"
    planned(tmp_path, "paper", ("dd", "ASC", 0))
    assert look(tmp_path, "asc/table1").group_by == "setting"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no run under results was mirrored to W&B: train with tracking=offline, the default, and call"),
        (["asc/table1"], "no run of asc/table1 under results was mirrored to W&B: train with"),
        (["asc/tabel1"], "results holds no target 'asc/tabel1': did you mean asc/table1?"),
        (
            ["asc/table1", "results.root=there"],
            "there holds no target 'asc/table1': `rawls reproduce asc/table1` makes it",
        ),
        (["asc/table1", "asc/fig2"], "rawls wandb workspace shows one target: 'asc/table1' or 'asc/fig2'"),
        (["seed=1"], "rawls wandb workspace does not know 'seed=1': only results.root=FOLDER can be set"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path / "results", "aa", mode="off")
    planned(tmp_path / "results", "smoke", ("aa", "ASC", 0))
    assert commands.main(["wandb", "workspace", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rawls: error: {sentence}") and error.count("\n") == 1


@dataclass
class Server:
    """W&B as far as it is asked here: `views` are those it has, `saved` what it was given."""

    views: dict[str, str] = field(default_factory=dict)
    saved: list[dict[str, Any]] = field(default_factory=list)
    has_project: bool = True

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        if "upsertView" in query:
            self.saved.append(given)
            self.views.setdefault(given["name"], f"view {len(self.views)}")
            return {"upsertView": {"view": {"id": self.views[given["name"]], "name": given["name"]}, "inserted": True}}
        if "allViews" in query:
            found = [{"node": {"id": self.views[name]}} for name in [given["view"]] if name in self.views]
            return {"project": {"allViews": {"edges": found}} if self.has_project else None}
        return {"viewer": {"id": "1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps({"data": state.answer(asked["query"], asked.get("variables") or {})}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield state, f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def called(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`rawls wandb workspace` in a process of its own, for W&B keeps who is logged in; nobody is, in this home."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB") and key != "NETRC"}
    # As a user's shell may say: it speaks of runs, and the view is asked of the server all the same.
    private = {"HOME": str(folder), "WANDB_CONFIG_DIR": str(folder), "WANDB_MODE": "offline"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "rawls.runners.cli.commands",
            "wandb",
            "workspace",
            *arguments,
            f"results.root={folder}/results",
        ],
        cwd=ROOT,
        env=kept | private | environment,
        capture_output=True,
        text=True,
        timeout=180,  # on a starved machine W&B has hung for eight minutes
    )


def test_the_view_is_saved_and_called_again_it_is_replaced(server: tuple[Server, str], tmp_path: Path) -> None:
    state, url = server
    stored(tmp_path / "results", "aa", names=("land", "water"))
    planned(tmp_path / "results", "smoke", ("aa", "ASC", 0))
    for _ in range(2):
        done = called(tmp_path, "asc/table1", WANDB_BASE_URL=url, WANDB_API_KEY=KEY)
        (name,) = state.views
        assert (done.stderr, done.returncode) == ("", 0)
        assert done.stdout == f"Saved: {url}/me/project of aa?nw={name[3:-2]}\n"
    first, second = state.saved
    assert ("id" in first, second["id"]) == (False, "view 0")
    assert (first["entityName"], first["projectName"], first["type"]) == ("me", "project of aa", "project-view")
    assert first["displayName"] == second["displayName"] == "rawls asc/table1"
    sections = json.loads(second["spec"])["section"]["panelBankConfig"]["sections"]
    assert [len(section["panels"]) for section in sections] == [3, 2, 2, 2, 3]
    # Another target's is another view.
    assert called(tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY=KEY).returncode == 0
    assert len(state.views) == 2


def test_a_project_that_is_not_there_is_one_line(server: tuple[Server, str], tmp_path: Path) -> None:
    state, url = server
    state.has_project = False
    stored(tmp_path / "results", "aa")
    done = called(tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY=KEY)
    assert (done.returncode, state.saved) == (2, [])
    assert done.stderr.startswith(
        "rawls: error: W&B has no project me/project of aa that you can see: `rawls wandb sync`"
    )


def test_without_a_login_is_one_line(tmp_path: Path) -> None:
    stored(tmp_path / "results", "aa")
    done = called(tmp_path)
    assert done.returncode == 2
    assert done.stderr == "rawls: error: W&B knows no key of yours: call `wandb login` once, or set WANDB_API_KEY\n"


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    stored(tmp_path / "results", "aa")
    done = called(tmp_path, WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY=KEY, WANDB_HTTP_TIMEOUT="1")
    assert done.returncode == 2
    assert done.stderr.startswith("rawls: error: W&B did not save the view (") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("call the same command again when, or from where, W&B can be reached\n")


def test_without_the_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)  # importing it raises
    assert commands.main(["wandb", "workspace"]) == 2
    assert capsys.readouterr().err == (
        "rawls: error: the package wandb_workspaces is not installed: call `make setup`, or `pip install "
        "wandb_workspaces`\n"
    )


def test_accuracies_are_of_the_evaluated_groups_and_epsilons_of_the_partition(tmp_path: Path) -> None:
    stored(tmp_path, "aa", names=("land", "water"))
    summary: dict[str, Any] = {"group_names": ["land", "water"], "evaluated_groups": ["old", "new", "far"]}
    summary |= {"dataset": "digits", "algorithm": "asc"}
    (tmp_path / "runs" / "aa" / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    found = panels(look(tmp_path, None))
    titles = {name: [one["config"]["chartTitle"] for one in of_section] for name, of_section in found.items()}
    assert [text.rpartition(": ")[2] for text in titles["Groups: accuracy on test"]] == ["old", "new", "far"]
    assert [text.rpartition(": ")[2] for text in titles["Privacy: ε planned and spent"][1:]] == ["land", "water"]


def test_damaged_records_are_left_out_and_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    for run_id in ("good", "bad"):
        stored(tmp_path, run_id, names=("land", "water"))
    (tmp_path / "runs" / "bad" / "summary.json").write_text("{}")
    assert look(tmp_path, None).project == "project of good"
    (tmp_path / "runs" / "good" / "summary.json").write_text("null")
    with pytest.raises(ConfigError, match="no run under .* was mirrored to W&B"):
        look(tmp_path, None)
    planned(tmp_path, "default", ("good", "ASC", 0))
    manifest = next(tmp_path.rglob("manifest.json"))
    for content in ("null", '{"runs": null}', "{", '{"runs": [{}]}'):
        manifest.write_text(content)
        with pytest.raises(ConfigError, match="a manifest of asc/table1 cannot be read"):
            look(tmp_path, "asc/table1")
