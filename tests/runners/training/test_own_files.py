"""Every method trains on a table and on images that nobody prepared; fleets, resumes and sentences as elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawls.runners import train as command
from rawls.runners.config.compose import choices, composer, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.schedule.launcher import planned, preflight
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import LEDGER, PRIVACY
from rawls.runners.training import setup
from rawls.runners.training.fleet import train_fleet
from tests.datasets.own.made import overrides, persons, write

OWNED = ["dataset.owner=clinic", "owners=column", "owners.epsilons={east:6,north:8,south:8}"]
BOUNDS = "dataset.bounds={age:[0,100],height:[100,220]}"
SMALLEST = ["privacy=eps8", "scale=smoke", "schedule.max_steps=3", "schedule.evaluations=1", "tracking=off"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = write(tmp_path_factory.mktemp("table") / "persons.csv", persons(400))
    return ["dataset=table", f"dataset.path={path}", "dataset.label=paid", "dataset.group=sex", BOUNDS, *SMALLEST]


def composed(*given: str) -> dict[str, Any]:
    return composer()(given)


def trained(root: Path, *runs: list[str], stop: int | None = None) -> list[Path]:
    """The folders of these runs, trained as one fleet."""
    configs = [composed(*run, f"results.root={root}") for run in runs]
    store = Store(root)
    folders = [folder for config in configs if (folder := store.claim(run_id(config), config))]

    def report(message: dict[str, Any]) -> None:
        if message["step"] == stop:
            raise KeyboardInterrupt

    try:
        train_fleet(configs, folders, report)
    finally:
        for folder in folders:
            if folder.held:
                folder.release()
    return [store.folder(run_id(config)) for config in configs]


def numbers(folder: Path) -> tuple[str, str]:
    return (folder / "history.jsonl").read_text(), (folder / LEDGER).read_text()


@pytest.mark.parametrize("algorithm", choices("algorithm"))
def test_every_method_trains_on_a_table_with_owners(algorithm: str, asked: list[str], tmp_path: Path) -> None:
    run = [*asked, *OWNED, f"algorithm={algorithm}"]
    preflight([planned(composed(*run, f"results.root={tmp_path}"))], Store(tmp_path))
    (folder,) = trained(tmp_path, run)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["dataset"] == "table" and summary["provenance"] == "real"
    assert summary["group_names"] == ["f", "m"] and summary["minority_groups"] == [0]
    private = summary["plan"] is not None
    assumed = "the values that occur in job and sex are public (each is an input)"
    assert assumed in json.loads((folder / LEDGER).read_text())["assumptions"]
    if private and summary["plan"].get("owner_budgets"):
        assert summary["owner_names"] == ["east", "north", "south"]
        assert summary["plan"]["owner_budgets"][0] == 6 < summary["plan"]["owner_budgets"][1]
        assert (folder / PRIVACY).read_text().count("north") > 0


def test_a_fleet_and_a_resume_end_with_the_numbers_of_a_run_alone(asked: list[str], tmp_path: Path) -> None:
    runs = [[*asked, f"algorithm={name}", f"seed={seed}"] for name, seed in (("dpsgd", 0), ("asc", 1))]
    straight = [numbers(folder) for run in runs for folder in trained(tmp_path / "alone", run)]
    assert [numbers(folder) for folder in trained(tmp_path / "together", *runs)] == straight
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "resumed", *runs, stop=2)
    assert [numbers(folder) for folder in trained(tmp_path / "resumed", *runs)] == straight


@pytest.mark.parametrize("algorithm", ["asc", "ino_sgd", "pgd_at"])
def test_images_are_trained_on(algorithm: str, tmp_path: Path) -> None:
    more = ["dataset=image_folder", *overrides("image_folder", tmp_path), "dataset.image_size=16", "owners=digits"]
    (folder,) = trained(
        tmp_path / "results",
        [
            *more,
            *SMALLEST,
            "schedule.batch_size=16",
            "owners.classes=[[0],[1]]",
            "owners.epsilons=[7,8]",
            f"algorithm={algorithm}",
        ],
    )
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["dataset"], summary["model"], summary["group_names"]) == (
        "image_folder",
        "papernot_cnn",
        ["a", "b"],
    )


def defects(path: Path) -> Path:
    """A file with five of them: a line of blanks, no labels, missing and strange cells, a number of the row."""
    columns = persons(600)
    paid = ["" if row in (10, 20, 30) else own for row, own in enumerate(columns["paid"])]
    age = ["?" if row % 40 == 0 else own for row, own in enumerate(columns["age"])]
    job = [f" {own}" if own else "N/A" for own in columns["job"]]
    write(
        path, {"": list(range(600)), **columns, "age": age, "job": job, "paid": paid}, delimiter=";", encoding="cp1252"
    )
    text = path.read_text("cp1252").replace("clinic", "Klinik für x")
    path.write_text(text + "\n\n", "cp1252", newline="")
    return path


def test_a_file_with_five_defects_goes_to_a_result_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It learns: more is right than if the more frequent class were said of everybody, by 5 points; 300 steps."""
    monkeypatch.chdir(tmp_path)
    defects(tmp_path / "mine.csv")
    given = ["dataset=table", "dataset.path=mine.csv", "dataset.label=paid", "dataset.group=sex"]
    more = ["algorithm=dpsgd", "privacy=eps8", "tracking=off", "schedule.max_steps=300", "schedule.evaluations=2"]
    assert command.main([*given, *more]) == 0
    out, err = capsys.readouterr()
    first, folder = out.splitlines()
    assert first.startswith("dpsgd on table, ε=8, seed 0; test WGA ")
    assert err.count("mine.csv: 600 rows of 7 columns by semicolons, in Windows-1252") == 1
    for line in (
        "no input: it numbers the rows",
        "- 3 rows without paid left out, the first is row 11",
        "- that cells of age, job and height are missing is public (an input says of which rows)",
    ):
        assert line in err
    summary = json.loads((tmp_path / folder / "summary.json").read_text())
    labels = setup.load(composed(*given, *more)).labels.numpy()
    test = summary["test"]
    accuracy = np.average(test["accuracy"], weights=test["count"])
    assert accuracy > np.bincount(labels).max() / len(labels) + 0.05


def test_what_was_found_is_said_once_for_all_runs(asked: list[str], tmp_path: Path) -> None:
    runs = [
        planned(composed(*asked, f"algorithm={name}", f"seed={seed}", f"results.root={tmp_path}"))
        for name in ("dpsgd", "sgd")
        for seed in (0, 1)
    ]
    (text,) = preflight(runs, Store(tmp_path))
    assert text.splitlines()[0].endswith("persons.csv: 400 rows of 6 columns by commas, in UTF-8")


@pytest.mark.parametrize(("epsilons", "others"), [((0.005,), ""), ((0.005, 0.01, 8), " (and of 1 other run)")])
def test_a_budget_that_drowns_is_said_before_hours_are_spent(
    epsilons: tuple[float, ...], others: str, asked: list[str], tmp_path: Path
) -> None:
    few = [text for text in asked if text != "schedule.max_steps=3"]
    runs = [
        planned(composed(*few, "algorithm=dpsgd", f"privacy.epsilon={one}", f"results.root={tmp_path}"))
        for one in epsilons
    ]
    _, told = preflight(runs, Store(tmp_path))
    assert told.startswith(f"dpsgd on table, ε=0.005, seed 0{others}: the noise of a step is ")
    assert told.endswith(
        " times the longest sum that the clipped gradients of its batch can have, so nothing is learnt; take a larger "
        "privacy.epsilon or schedule.batch_size, fewer steps, or more rows"
    )
    prepared = setup.prepare_run(runs[0].config)
    assert prepared.plan is not None and prepared.noise_to_signal is not None
    assert prepared.noise_to_signal == pytest.approx(prepared.plan.noise_std / 16)


def test_a_budget_is_not_said_to_drown_for_methods_without_one(asked: list[str], tmp_path: Path) -> None:
    for name in ("sgd", "dp_oco_worst_group"):
        config = composed(*asked, f"algorithm={name}", "privacy.epsilon=0.01")
        assert setup.prepare_run(config).noise_to_signal is None


def test_owners_that_the_table_does_not_name_are_asked_for(asked: list[str], tmp_path: Path) -> None:
    def sentence(*more: str) -> str:
        config = composed(*asked, "algorithm=idp_sgd", f"results.root={tmp_path}", *more)
        with pytest.raises(ConfigError) as caught:
            preflight([planned(config)], Store(tmp_path))
        return str(caught.value).partition("seed 0: ")[2]

    assert sentence("owners=column", "owners.epsilons=[1,2]") == (
        "owners=column takes owners from the data, which name none: set dataset.owner=COLUMN of files of your own, or "
        "choose other owners"
    )
    owned = ("dataset.owner=clinic", "owners=column")
    assert sentence(*owned, "owners.epsilons={east:6,north:8}") == (
        "owner 'south' has no budget: give it one in owners.epsilons, beside ['east', 'north']"
    )
    assert sentence(*owned, "owners.epsilons={east:6,north:8,south:7,west:8}") == (
        "owners.epsilons names 'west', who owns nothing; the owners are ['east', 'north', 'south']"
    )
