import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rawls.runners import train
from rawls.runners.cli import commands
from rawls.runners.cli.arguments import plain
from rawls.runners.cli.commands import COMMANDS, help_text, main
from rawls.runners.cli.planned import OF_NO_PAPER
from rawls.runners.config.compose import choices
from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule import launcher
from rawls.runners.schedule.backends.slurm import SlurmCluster
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.sweeps.experiments import plan

SMALL = ["dataset=digits", "scale=smoke", "tracking=off", "seed=0", "algorithm=dpsgd"]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands are called in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `train` was called with; nothing is trained."""
    calls: list[list[str]] = []

    def note(arguments: Sequence[str]) -> int:
        calls.append(list(arguments))
        return 0

    monkeypatch.setattr(train, "main", note)
    return calls


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], list[str]]:
    """Sets how a sweep that trains nothing ends; returns the labels of what it was given."""

    def ending(outcome: Outcome) -> list[str]:
        labels: list[str] = []

        def launch(runs: Sequence[PlannedRun], **_: Any) -> Outcome:
            labels.extend(run.label for run in runs)
            return outcome

        monkeypatch.setattr(launcher, "launch", launch)
        monkeypatch.setattr(launcher, "preflight", lambda runs, store, **_: [])
        monkeypatch.setattr("rawls.runners.process.lifecycle.prepare_process", lambda: None)
        return labels

    return ending


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed == help_text() + "\n"
    assert [name for name in COMMANDS if f"\n  {name}" not in printed] == []


def test_help_needs_nothing_heavy() -> None:
    script = (
        "import rawls.runners.cli.commands, sys; rawls.runners.cli.commands.main(['--help']); "
        "print('\\n', *sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=Path(commands.__file__).parents[1])
    loaded = {name.removeprefix("rawls.").partition(".")[0] for name in printed.splitlines()[-1].split()}
    assert not loaded & {"torch", "numpy", "pandas", "hydra", "omegaconf", "yaml", "analysis", "conf"}


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rawls {version('rawls')}\n"


@pytest.mark.parametrize("name", ["reproduce", "render", "targets", "compare", "data"])
def test_a_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: rawls {name} ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trian"], "unknown command 'trian': did you mean train?"),
        (["reproduce"], "name a target first: one of arena, asc/calibration, asc/fig1,"),
        (["reproduce", "dataset=digits"], "name a target first: one of arena, asc/calibration,"),
        (["reproduce", "asc/tabel1"], "unknown target 'asc/tabel1': did you mean asc/table1?"),
        (
            ["render", "asc/table1", "optimizer.lrr=1"],
            "unknown key 'optimizer.lrr': did you mean optimizer.lr?",
        ),
        (["targets", "scale=large"], "unknown scale 'large'"),
        (["data"], "name a dataset first: one of adult,"),
        (["data", "digit"], "unknown dataset 'digit': did you mean digits?"),
        (["train", "seed=x"], "seed=x must be an integer"),
    ],
)
def test_what_is_wrong_is_one_line_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"rawls: error: {sentence}") and error.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_debug_shows_where_an_error_comes_from() -> None:
    with pytest.raises(ValueError, match="unknown command"):
        main(["trian", "--debug"])


def test_train_gets_its_arguments_as_they_are(swept: list[list[str]]) -> None:
    assert main(["train", "-m", "seed=0,1", "--help"]) == 0
    assert swept == [["-m", "seed=0,1", "--help"]]


def test_reproduce_sweeps_then_draws(
    launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    labels = launched(Outcome())
    assert main(["reproduce", "asc/table1", "hydra/launcher=local", *SMALL]) == 0
    assert labels == ["dpsgd on digits, ε=1, seed 0"]
    printed = capsys.readouterr().out
    drawn = folder / "results/targets/asc/table1/digits-smoke-algorithm=dpsgd-seed=0"
    assert (drawn / "manifest.json").is_file()
    assert "DPSGD" in printed and f"  {drawn.relative_to(folder)}/table.md" in printed


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hydra/launcher=basic", "starts a job for each run, which only `rawls train -m` can do"),
        ("hydra/launcher=slrm", "unknown hydra/launcher 'slrm': did you mean slurm?"),
        ("hydra.launcher.workers=0", "hydra.launcher.workers=0 must be 1 or more"),
        ("hydra.launcher.workers=many", "hydra.launcher.workers=many must be an integer or null"),
        ("hydra.launcher.wokers=1", "wokers"),
        ("seed=0,x", "seed=x must be an integer"),
        ("--jobs=3", "cannot read '--jobs=3': write KEY=VALUE"),
    ],
)
def test_what_reproduce_cannot_train_is_said_before_anything_is_written(
    override: str, sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(["reproduce", "asc/table1", *SMALL, override]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1) and sentence in error
    assert list(folder.iterdir()) == []


def test_reproduce_trains_on_the_cluster_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def note(configs: Sequence[dict[str, Any]], backend: Any, *, command: str) -> Outcome:
        given.extend([len(configs), backend, command])
        return Outcome(interrupted=True)

    monkeypatch.setattr(launcher, "train", note)
    options = ["hydra/launcher=slurm", "hydra.launcher.memory=1.5", "hydra.launcher.workers=3"]
    assert main(["reproduce", "asc/fig2", *SMALL, *options]) == 130
    assert given[:2] == [1, SlurmCluster(memory=1.5, workers=3)]
    assert given[2] == "rawls reproduce asc/fig2 dataset=digits scale=smoke tracking=off seed=0 algorithm=dpsgd"


@pytest.mark.parametrize("flag", ["--config-dir=own", "hydra.searchpath=[file://own]"])
def test_reproduce_and_render_find_the_users_own_configurations(
    flag: str, launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "own" / "privacy").mkdir(parents=True)
    (folder / "own" / "privacy" / "eps3.yaml").write_text("epsilon: 3\n")
    labels = launched(Outcome())
    for command in ("reproduce", "render"):
        assert main([command, "asc/table1", flag, "privacy=eps3", *SMALL]) == 0
        assert "digits-smoke-algorithm=dpsgd-privacy=eps3-seed=0/table.md" in capsys.readouterr().out
    assert labels == ["dpsgd on digits, ε=3, seed 0"]


def test_choosing_ends_with_advice_and_the_command_that_trains_the_winner(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    small = ["dataset=digits", "scale=smoke", "tracking=off", "schedule.max_steps=3", "schedule.evaluations=1"]
    assert main(["choose", *small, "privacy.epsilon=8", "algorithm=dpsgd,idp_sgd,sgd", "hydra.launcher.workers=1"]) == 0
    printed = capsys.readouterr().out
    assert "| 1    | **DP-SGD**" in printed and "| –    | SGD (no privacy)" in printed
    assert (
        "No method reaches every group: DP-SGD, the first by" in printed
        and "Left out, IDP-SGD on digits: it keeps budgets of owners" in printed
    )
    *_, said, release, export = printed.splitlines()
    assert export.strip().startswith("rawls export RUN")
    assert said.startswith("To train it for release")
    words = release.split()
    assert words[:2] == ["rawls", "train"] and words[-1] == "privacy.secure=true" and "algorithm=dpsgd" in words
    assert not any(word.startswith(("seed=", "tracking=")) for word in words)
    assert main(["render", "choose", *small, "privacy.epsilon=8", "algorithm=dpsgd,idp_sgd,sgd"]) == 0
    assert "DP-SGD, the first by validation" in capsys.readouterr().out


def test_an_experiment_of_the_users_own_is_reproduced_and_its_manifest_drawn_again(
    launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "own" / "experiment").mkdir(parents=True)
    (folder / "own" / "experiment" / "mine.yaml").write_text(
        "title: Mine\nseeds: 2\ncommon: {dataset: digits}\nblocks: [{label: D, overrides: {algorithm: dpsgd}}]\n"
        "draw: {kind: accuracy_table}\n"
    )
    labels = launched(Outcome())
    assert main(["reproduce", "mine", "--config-dir", "own", "scale=smoke"]) == 0
    assert labels == ["dpsgd on digits, ε=8, seed 0", "dpsgd on digits, ε=8, seed 1"]
    printed, following, _ = capsys.readouterr().out.partition("Next:\n")
    assert printed.startswith("Mine") and following
    assert main(["render", "results/targets/mine/smoke/manifest.json"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["render", "mine"]) == 2


@pytest.mark.parametrize(("code", "draws"), [(1, True), (130, False)])
def test_reproduce_draws_what_there_is_when_runs_failed_but_not_when_interrupted(
    code: int, draws: bool, launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    launched(Outcome(open=["x"], interrupted=code == 130))
    assert main(["reproduce", "asc/table1", *SMALL]) == code
    assert ("UNFINISHED" in capsys.readouterr().out) == draws


def test_a_computed_target_is_drawn_and_nothing_is_launched(
    launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    labels = launched(Outcome(interrupted=True))
    assert main(["reproduce", "fdpg/fig5", "tracking=off"]) == 0
    assert labels == []
    assert "| γ = 0.01  |                0.81 |" in capsys.readouterr().out
    assert (folder / "results" / "targets" / "fdpg" / "fig5" / "computed" / "figure.png").is_file()


def test_render_trains_nothing(swept: list[list[str]], capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["render", "asc/table1", "results.root=elsewhere", *SMALL]) == 0
    assert swept == []
    assert "elsewhere/targets/asc/table1/" in capsys.readouterr().out
    assert not (folder / "results").exists()


@pytest.mark.parametrize("typed", ["results.root=wälder (1)", "results.root='wälder (1)'"])
def test_every_command_takes_the_same_folder(
    typed: str, launched: Callable[[Outcome], list[str]], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    launched(Outcome())
    assert main(["reproduce", "asc/fig2", typed, *SMALL]) == 0
    drawn = folder / "wälder (1)" / "targets/asc/fig2/digits-smoke-algorithm=dpsgd-seed=0"
    assert json.loads((drawn / "manifest.json").read_text())["command"].startswith(
        f"rawls reproduce asc/fig2 '{plain(typed)}'"
    )
    for arguments in (["report", "asc/table1"], ["status"], ["render", "asc/fig2", *SMALL]):
        assert main([*arguments, typed]) == 0, arguments
    assert "Written: wälder (1)/report/index.html" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["wälder (1)"]


@pytest.mark.system  # plans every target twice
def test_targets_lists_every_target_and_every_drawing(
    capsys: pytest.CaptureFixture[str], swept: list[list[str]]
) -> None:
    main(["render", "asc/table1", *SMALL])
    capsys.readouterr()
    assert main(["targets", "scale=smoke"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["target", "variant", "done", "needed", "failed", "running", "data", "verdict"]
    assert {row[0] for row in rows[1:]} == set(choices("experiment")) - set(OF_NO_PAPER)
    listed = {(row[0], row[1]): row[3] for row in rows[1:]}
    assert listed["asc/table1", "smoke"] == str(len(plan(["experiment=asc/table1", "scale=smoke"]).runs))
    assert listed["asc/table1", "digits-smoke-algorithm=dpsgd-seed=0"] == "1"
    assert listed["asc/calibration", "smoke"] == str(len(plan(["experiment=asc/calibration", "scale=smoke"]).runs))


def test_a_target_is_reproduced_once(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    command = ["reproduce", "asc/table1", *SMALL, "algorithm=dpsgd,azb_prop", "hydra.launcher.workers=1"]
    assert main(command) == 0
    runs = {path: path.stat().st_mtime_ns for path in (folder / "results/runs").rglob("*")}
    assert sum(path.name == "summary.json" for path in runs) == 2
    first = capfd.readouterr().out
    assert "aZB-prop" in first and "UNFINISHED" not in first
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "results/runs").rglob("*")} == runs
    assert capfd.readouterr().out == first


def test_compare_takes_two_names_and_what_chooses_among_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []

    def note(*given: object) -> str:
        called.append(given)
        return ""

    monkeypatch.setattr("rawls.analysis.compare.print_comparison.compare_text", note)
    variant = "asc/fig2/digits-privacy=eps1-seed=0+1"
    assert main(["compare", "asc/table1", variant, "dataset=digits", "results.root=there", "seed=0,1"]) == 0
    assert main(["compare", "asc", "dpsgd"]) == 0
    assert called == [("there", "asc/table1", variant, ["dataset=digits", "seed=0,1"]), ("results", "asc", "dpsgd", [])]


@pytest.mark.parametrize("arguments", [[], ["asc"], ["asc", "dataset=digits"], ["results.root=/there", "asc", "dpsgd"]])
def test_compare_needs_two_names(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *arguments]) == 2
    assert "name two sweeps, methods or runs first" in capsys.readouterr().err


def test_compare_of_an_empty_folder_says_where_runs_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "asc", "dpsgd"]) == 2
    assert capsys.readouterr().err == (
        "rawls: error: unknown name 'asc': results holds no runs; say where they are, results.root=FOLDER\n"
    )


@pytest.mark.system
def test_report_tells_every_target_the_drawings_there_are_and_else_the_plan(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    main(["render", "asc/table1", *SMALL])
    capsys.readouterr()
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "Written: results/report/index.html\n"
    page = (folder / "results" / "report" / "index.html").read_text(encoding="utf-8")
    assert [name for name in choices("experiment") if f">{name}</a>" not in page] == sorted(OF_NO_PAPER)
    assert page.count("<code>rawls reproduce asc/table1 dataset=digits scale=smoke seed=0 algorithm=dpsgd</code>") == 3
    assert page.count("<code>rawls reproduce asc/fig1</code>") == 3
    assert main(["report", "asc/fig1", "results.root=results"]) == 0
    chosen = (folder / "results" / "report" / "index.html").read_text(encoding="utf-8")
    assert "asc/fig1" in chosen and "asc/table1 [" not in chosen


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["results.root=nowhere"], "results.root=nowhere is no folder: `rawls reproduce TARGET` makes one"),
        (["asc/tabel1", "results.root=."], "unknown target 'asc/tabel1': did you mean asc/table1?"),
        (["scale=smoke"], "rawls report does not know 'scale=smoke': name targets, and set results.root=FOLDER"),
    ],
)
def test_what_a_report_cannot_be_made_of_is_one_line(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"rawls: error: {sentence}")
    assert list(folder.iterdir()) == []


def test_the_dashboard_is_told_where_results_lie_and_which_targets_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[list[str]] = []

    def note(options: list[str], arguments: list[str]) -> int:
        served.append(arguments)
        return 0

    monkeypatch.setattr("rawls.analysis.pages.dashboard.serve._serve", note)
    assert main(["dashboard", "results.root=elsewhere", "headless=true"]) == 0
    ((root, *experiments),) = served
    assert root == str(Path("elsewhere").absolute())
    assert "asc/table1" in {f"{Path(path).parent.name}/{Path(path).stem}" for path in experiments}
    assert main(["dashboard", "results.rot=x"]) == 2
