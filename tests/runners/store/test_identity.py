"""Ids that are recorded come out again, wherever the code lies by now."""

import csv
import re
import shlex
from pathlib import Path

import pytest

from rawls.runners.config.compose import choices, compose, resolve, run_id
from rawls.runners.config.specifications import name_of
from rawls.runners.store.identity import FROZEN, hashed_part, registered
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import plan
from tests.tree import ROOT

RECORD = ROOT / "analysis" / "reproduced"
COMMANDS = {
    words[0]: words[1:]
    for words in map(
        shlex.split, re.findall(r"`rawls (?:reproduce|render) ([^`]*)`", (RECORD / "README.md").read_text("utf-8"))
    )
}
# Unbalanced MNIST as it was tuned when the calibration was recorded: no plan depends on it, every id does.
TUNED_BEFORE = [
    ["dataset=unbalanced_mnist", "algorithm=dpsgd", "optimizer.momentum=0"],
    ["dataset=unbalanced_mnist", "algorithm=asc", "algorithm.group_lr=0.2"],
    ["dataset=unbalanced_mnist", "algorithm=azb_prop,azb_weak", "optimizer.lr=0.01"],
]


def recorded(target: str) -> set[str]:
    with open(RECORD / target / "runs.csv", encoding="utf-8", newline="") as file:
        return {row["run_id"] for row in csv.DictReader(file)}


def test_every_folder_of_the_record_has_its_command() -> None:
    assert COMMANDS.keys() == {path.parent.relative_to(RECORD).as_posix() for path in RECORD.rglob("runs.csv")}


@pytest.mark.parametrize("target", COMMANDS)
def test_every_recorded_id_comes_out_again(target: str) -> None:
    # A plan reads no data, and says nothing of them; runs were trained on the real ones.
    data = [] if target.endswith("/calibration") else ["dataset.provenance=real"]
    asked = [f"experiment={target}", *COMMANDS[target], *data]
    ids = {run.run_id for run in plan(asked).runs}
    if target == "asc/calibration":
        assert len(recorded(target) & ids) == 32
        for tuned in TUNED_BEFORE:
            ids |= {run.run_id for run in plan([*asked, *tuned]).runs}
    assert recorded(target) <= ids


@pytest.mark.parametrize(
    ("algorithm", "expected"), [("sgd", "35653c393f242f73"), ("gdro", "6f6a31593567abc5")], ids=["sgd", "gdro"]
)
def test_noise_that_is_not_asked_for_leaves_the_ids_from_before_it_existed(algorithm: str, expected: str) -> None:
    """And noise makes another run."""
    asked = ["dataset=digits", f"algorithm={algorithm}", "scale=paper", "schedule.plan_only=true"]
    assert run_id(compose(asked)) == expected
    assert run_id(compose([*asked, "algorithm.gradient_noise=0.1"])) != expected


@pytest.mark.parametrize(
    ("model", "field", "expected"),
    [
        ("tabular_mlp", "activation=tanh", "081941bc099b7be2"),
        ("tabular_mlp", "widths=[47,47,47]", "081941bc099b7be2"),
        ("logistic", "squash=sigmoid", "b7b9debb33f7cbc8"),
        ("cifar_cnn", "standardised=cifar10", "32f815b7b71b282a"),
        ("papernot_cnn", "standardised=mnist", "d42c7b1fe5e4bd70"),
        ("resnet18", "weights=torchvision", "bc295983398d429b"),
        ("resnet50", "norm=batch", "93bd48c158939c4b"),
    ],
)
def test_what_other_papers_ask_of_a_model_leaves_the_ids_from_before(model: str, field: str, expected: str) -> None:
    asked = ["dataset=digits", "algorithm=dpsgd", "scale=paper", "privacy=eps1", "schedule.plan_only=true"]
    asked.append(f"model={model}")
    assert run_id(compose(asked)) == expected
    assert run_id(compose([*asked, f"model.{field}"])) != expected


def test_a_class_that_moves_keeps_its_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, of in (("moved_models", "models.architectures.mnist_cnn"), ("moved_methods", "algorithms.dpsgd")):
        (tmp_path / folder).mkdir()
        module = (ROOT / f"{of.replace('.', '/')}.py").read_text("utf-8")
        (tmp_path / folder / f"{of.rpartition('.')[2]}.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAWLS_MODULES", "moved_models,moved_methods")
    chosen = ["algorithm=dpsgd", "model=mnist_cnn"]
    moved = [
        *chosen,
        "algorithm._target_=moved_methods.dpsgd.DpSgd",
        "model._target_=moved_models.mnist_cnn.MnistCnn",
    ]
    config = resolve(compose(moved))
    assert config["algorithm"]["_target_"] == "moved_methods.dpsgd.DpSgd"
    assert run_id(config) == run_id(compose(chosen))
    assert name_of(config["algorithm"]) == "dpsgd"
    # What an earlier version stored is the same run: it is neither refused nor trained again.
    store = Store(tmp_path / "results")
    store.folder(run_id(config)).mkdir(parents=True)
    (store.folder(run_id(config)) / "config.yaml").write_bytes(store.config_text(resolve(compose(chosen))))
    store.check_config(run_id(config), config)


def test_names_of_today_hash_as_they_did_and_new_ones_as_themselves() -> None:
    for group, names in FROZEN.items():
        for name, target in names.items():
            assert registered(target) == name
            assert hashed_part({group: {"_target_": f"any.where.{name}.{target.rpartition('.')[2]}"}}) == {
                group: {"_target_": target}
            }
        assert names.keys() <= set(choices(group)), "a name that was frozen is gone: its runs cannot be made again"
    assert hashed_part({"algorithm": {"_target_": "algorithms.dp_is_sgd.DpIsSgd"}}) == {
        "algorithm": {"_target_": "dp_is_sgd"}
    }


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("mine.dp_is_sgd.DpIsSgd", "dp_is_sgd"),
        ("mine.sub.dp_is_sgd.DpIsSgd", "dp_is_sgd"),
        ("mine.Clipped", "mine.Clipped"),
        ("deep.mine.Averaged", "mine.Averaged"),
        ("algorithms.asc.Other", "asc.Other"),
        ("Alone", ".Alone"),
    ],
)
def test_two_classes_of_one_file_are_two_names(target: str, name: str) -> None:
    assert registered(target) == name
