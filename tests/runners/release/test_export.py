"""A trained model leaves as a folder that says what it is, and that works where rawls is not."""

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.runners.config.errors import ConfigError
from rawls.runners.release.export import CARD, Exported, export
from rawls.runners.release.finished import module_of, read_run
from rawls.runners.release.model import PROGRAM, load_model
from rawls.runners.store.checksums import CHECKSUMS, verify
from rawls.runners.store.results_store import Store
from rawls.runners.training.setup import load
from tests.runners.release.runs import columns_of, images, table, trained

WITHOUT_RAWLS = """
import sys
class Refuse:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "rawls":
            raise ImportError("rawls is not here")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
import json, numpy, torch
from load import load
"""


def said_without_rawls(script: str, *arguments: object) -> object:
    """What a script says as JSON in a process that has torch and safetensors, and no rawls."""
    command = [sys.executable, "-I", "-B", "-c", WITHOUT_RAWLS + script, *map(str, arguments)]
    ran = subprocess.run(command, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of_table")
    return trained(folder / "results", *table(folder), "algorithm=asc", "privacy=eps8")


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(run, tmp_path_factory.mktemp("left") / "mine")


def test_a_stranger_gets_the_answers_that_the_run_was_evaluated_by(run: Path, exported: Exported) -> None:
    finished = read_run(run)
    path = Path(finished.config["dataset"]["path"])
    answers = said_without_rawls(
        "import csv\nmodel = load()\nrows = list(csv.DictReader(open(sys.argv[2])))\n"
        "print(json.dumps([model.predict_proba(rows).tolist(), model.predict(rows[:4])]))",
        exported.folder,
        path,
    )
    data = load(finished.config)  # the inputs that training made of the same file
    with torch.no_grad():
        wanted = module_of(finished)(data.inputs.gather(torch.arange(len(data.labels)))).softmax(1).numpy()
    assert isinstance(answers, list)
    assert np.allclose(answers[0], wanted, atol=1e-6)
    assert answers[1] == [data.class_names[place] for place in wanted[:4].argmax(1)]
    assert set(data.class_names) == {"badly", "well"}
    # By what training recorded: of the test rows of each group, as many right answers.
    (_, _, test), groups = data.splits(0), data.groups.numpy()
    right = np.array(answers[0])[test].argmax(1) == data.labels.numpy()[test]
    told = [right[groups[test] == group].mean() for group in range(len(finished.summary["group_names"]))]
    assert told == pytest.approx(finished.summary["test"]["accuracy"])


def test_the_files_are_whole_and_name_no_folder_of_this_machine(run: Path, exported: Exported) -> None:
    names = {path.name for path in exported.folder.iterdir()}
    assert names == {*exported.files, CHECKSUMS} and verify(exported.folder) == []
    weights = load_file(exported.folder / "weights.safetensors")
    assert all(torch.equal(values, weights[name]) for name, values in load_file(run / "weights.safetensors").items())
    for name in names - {PROGRAM, "weights.safetensors"}:
        assert str(run.parents[2]) not in (exported.folder / name).read_text("utf-8"), name
    program = (exported.folder / PROGRAM).read_bytes()
    assert str(run.parents[2]).encode() not in program
    assert yaml.safe_load((exported.folder / "config.yaml").read_text())["dataset"]["path"] == "persons.csv"
    (exported.folder / "inputs.json").write_text("{}")
    try:
        with pytest.raises(ConfigError, match=r"inputs\.json is not what was exported .* get it again"):
            load_model(exported.folder)
        with pytest.raises(AssertionError, match="not what was exported"):
            said_without_rawls("load()", exported.folder)
    finally:
        (exported.folder / "inputs.json").write_bytes((run / "inputs.json").read_bytes())


def test_the_card_says_what_the_run_says(run: Path, exported: Exported) -> None:
    finished, card = read_run(run), (exported.folder / CARD).read_text("utf-8")
    summary = finished.summary
    for place, name in enumerate(summary["group_names"]):
        cells = [f"{100 * summary[part]['accuracy'][place]:.1f}" for part in ("train", "valid", "test")]
        assert f"| {name} | {' | '.join(cells)} | {summary['test']['count'][place]} |" in card
    assert f"| **WGA**, the lowest | {100 * summary['train']['wga']:.1f} |" in card
    assert "rawls train dataset=table" in card and "algorithm=asc" in card
    assert "mean and standard deviation of height are public" in card and "cut to 18 to 80" in card
    assert all(line.lstrip("#") in card for line in finished.privacy.splitlines())
    assert "ε = 8" in card and "What is not covered" in card and "the ε does not cover them" in card
    # Its noise can be drawn again: said first, with the command that mends it.
    (seeded,) = (text for text in exported.warnings if "can draw it again" in text)
    assert "privacy.secure=true`" in seeded and card.index(seeded) < card.index("## What it is")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["algorithm=sgd"], "trained without privacy by sgd"),
        (["algorithm=dpsgd", "privacy=eps8", "dataset.provenance=simulated", "dataset=digits"], "SIMULATED DATA"),
    ],
)
def test_what_a_taker_must_know_is_said_first(overrides: list[str], sentence: str, tmp_path: Path) -> None:
    own = [] if "dataset=digits" in overrides else table(tmp_path)
    left = export(trained(tmp_path / "results", *own, *overrides), tmp_path / "left")
    assert any(sentence in text for text in left.warnings)
    card = (left.folder / CARD).read_text("utf-8")
    assert 0 < card.index(sentence) < card.index("## What it is")


def test_noise_of_the_operating_system_is_said_and_nothing_warned_of(tmp_path: Path) -> None:
    run = trained(tmp_path / "results", *table(tmp_path), "algorithm=dpsgd", "privacy=eps8", "privacy.secure=true")
    left = export(run, tmp_path / "left")
    assert left.warnings == ()
    assert "nobody can draw it again" in (left.folder / CARD).read_text("utf-8")


def test_images_are_taken_as_files_and_as_pixels(tmp_path: Path) -> None:
    run = trained(tmp_path / "results", *images(tmp_path), "algorithm=dpsgd", "privacy=eps8", "model=cifar_cnn")
    left = export(run, tmp_path / "left")
    paths = sorted((tmp_path / "faces" / "images").iterdir())[:5]
    finished = read_run(run)
    model = load_model(left.folder)
    pixels = model.images(paths)
    with torch.no_grad():
        wanted = module_of(finished)(pixels).softmax(1)
    script = "print(json.dumps(load().predict_proba(sys.argv[2:]).tolist()))"
    assert np.allclose(np.array(said_without_rawls(script, left.folder, *paths)), wanted, atol=1e-5)
    assert np.allclose(model.predict_proba(paths), wanted, atol=1e-5)
    assert model.predict(pixels).tolist() == [model.classes[place] for place in wanted.argmax(1)]


@dataclass(frozen=True, kw_only=True)
class Halves(Frozen):
    """A linear layer on what a file's number makes of both halves of the inputs."""

    files: ClassVar[tuple[WeightsFile, ...]] = (
        WeightsFile(
            filename="number.txt",
            sha256=hashlib.sha256(b"3").hexdigest(),
            folder="halves",
            registry="pip",
            pinned="halves==1.0",
            member="number.txt",
        ),
    )

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        frozen = nn.Linear(math.prod(input_shape), 5)
        nn.init.constant_(frozen.weight, float(paths[0].read_text()))
        nn.init.zeros_(frozen.bias)
        return nn.Sequential(nn.Flatten(), frozen)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Linear(input_shape[0], num_classes)


def test_a_frozen_part_leaves_within_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "halves").mkdir()
    (tmp_path / "halves" / "number.txt").write_text("3")
    given = ["dataset=digits", "algorithm=dpsgd", "privacy=eps8", f"data.root={tmp_path}"]
    run = trained(tmp_path / "results", *given, model={"_target_": f"{__name__}.Halves"})
    left = export(run, tmp_path / "left")
    (tmp_path / "halves" / "number.txt").unlink()
    inputs = torch.rand(4, 1, 8, 8)
    weights = load_file(left.folder / "weights.safetensors")
    features = 3 * inputs.flatten(1).sum(1, keepdim=True).expand(-1, 5)
    wanted = (features @ weights["weight"].T + weights["bias"]).softmax(1)
    assert np.allclose(load_model(left.folder).predict_proba(inputs), wanted, atol=1e-5)
    assert "60 parameters trained behind a frozen part" in (left.folder / CARD).read_text("utf-8")
    with pytest.raises(ValueError, match=r"number\.txt .* is not under"):
        load_model(run)


def test_it_leaves_although_its_data_are_gone(tmp_path: Path) -> None:
    run = trained(tmp_path / "results", *table(tmp_path), "algorithm=dpsgd", "privacy=eps8", "seed=3")
    (tmp_path / "persons.csv").unlink()
    left = export(run, tmp_path / "left")
    assert "no command alone: config.yaml has all of it" in (left.folder / CARD).read_text("utf-8")


def test_a_model_that_torch_writes_no_program_of_leaves_as_weights(tmp_path: Path) -> None:
    overrides = ["dataset=surnames", "dataset.provenance=simulated", "algorithm=dpsgd", "privacy=eps8"]
    run = trained(tmp_path / "results", *overrides)
    left = export(run, tmp_path / "left")
    assert PROGRAM not in left.files and any("no program of its network" in text for text in left.warnings)
    data = load(read_run(run).config)
    tokens = data.inputs.gather(torch.arange(4))
    for name in (CARD, "summary.json", "environment.json"):  # as the card allows
        (left.folder / name).unlink()
    assert np.allclose(load_model(left.folder).predict_proba(tokens), load_model(run).predict_proba(tokens))
    with pytest.raises(AssertionError, match="install rawls, or give the network"):
        said_without_rawls("load()", left.folder)


def damage(folder: Path) -> Path:
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(weights)
    return folder


def without_checksum(folder: Path, name: str) -> Path:
    """As a version wrote it that kept no such file, and a record that keeps none."""
    (folder / name).unlink()
    told = json.loads((folder / CHECKSUMS).read_text())
    (folder / CHECKSUMS).write_text(json.dumps({key: value for key, value in told.items() if key != name}))
    return folder


def failed(folder: Path) -> Path:
    return folder.rename(folder.with_name(f"{folder.name}.failed"))


def interrupted(folder: Path) -> Path:
    return folder.rename(folder.with_name(f"{folder.name}.running"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (damage, r"weights\.safetensors is not what was written"),
        (lambda folder: without_checksum(folder, "weights.safetensors"), "taken from records, which hold no weights"),
        (lambda folder: without_checksum(folder, "inputs.json"), "of an earlier version of rawls.*retrain=true"),
        (failed, "failed, so it has no final weights"),
        (interrupted, "is not finished, so it has no final weights"),
    ],
)
def test_what_cannot_leave_is_refused_in_a_sentence(
    change: Callable[[Path], Path], sentence: str, tmp_path: Path
) -> None:
    run = trained(tmp_path / "results", "dataset=digits", "algorithm=dpsgd", "privacy=eps8", "model=logistic")
    folder = change(run)
    for named in (folder, run.name[:6]):
        with pytest.raises(ConfigError, match=sentence):
            export(named, tmp_path / "left", results=tmp_path / "results")
    assert not (tmp_path / "left").exists()


def test_weights_that_were_not_kept_are_missed(tmp_path: Path) -> None:
    run = trained(tmp_path / "results", "dataset=digits", "algorithm=sgd", "results.weights=false")
    assert not (run / "inputs.json").exists()
    with pytest.raises(ConfigError, match=r"results\.weights=false.*retrain=true"):
        export(run, tmp_path / "left")


def test_a_run_is_found_by_the_beginning_of_its_id(run: Path, exported: Exported, tmp_path: Path) -> None:
    results = run.parents[1]
    assert export(run.name[:5], tmp_path / "left", results=results).files == exported.files
    with pytest.raises(ConfigError, match="is there already"):
        export(run, tmp_path / "left")
    with pytest.raises(ConfigError, match="was exported already"):
        export(exported.folder, tmp_path / "other")
    with pytest.raises(ConfigError, match="no run 'ffffffffffff'"):
        export("ffffffffffff", tmp_path / "other", results=results)
    other = Store(results).folder(f"{run.name[:5]}0000000")
    other.mkdir()
    try:
        with pytest.raises(ConfigError, match=f"2 runs begin with {run.name[:5]}"):
            export(run.name[:5], tmp_path / "other", results=results)
    finally:
        other.rmdir()


def test_a_table_is_answered_from_python_as_from_its_file(run: Path, exported: Exported) -> None:
    import pandas as pd

    path = Path(read_run(run).config["dataset"]["path"])
    frame, model = pd.read_csv(path), load_model(run)
    from_file = model.predict_proba(columns_of(path))
    assert np.allclose(model.predict_proba(frame), from_file)
    assert np.allclose(load_model(exported.folder).predict_proba(frame), from_file, atol=1e-6)
    assert model.predict(frame)[:3].tolist() == [model.classes[place] for place in from_file[:3].argmax(1)]
    with pytest.warns(UserWarning, match="1 cell of job with a value that training did not have"):
        model.predict(frame[:1].assign(job="pilot"))
    with pytest.raises(ConfigError, match=r"has no column 'height'.*did you mean 'hight'"):
        model.predict(frame.rename(columns={"height": "hight"}))
