"""Every YAML composes, says what it must, and is covered by one of these tests."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import MISSING, OmegaConf

from rawls.analysis.read.papers_numbers import reported
from rawls.runners.config.compose import CONF, choices, compose, resolve, run_id
from rawls.runners.config.schema import SPECS
from rawls.runners.config.specifications import build, dump, name_of
from rawls.runners.store.identity import TARGET
from rawls.runners.sweeps.experiments import manifest_of, plan
from tests.datasets.own.made import overrides

EXPERIMENTS = choices("experiment")
TUNED = [tuple(name.split("/")) for name in choices("tuned") if name.count("/") == 1]
AT_SCALES = [tuple(name.split("/")) for name in choices("tuned") if name.count("/") > 1]
# Chosen one at a time, over the defaults.
SINGLE = ("privacy", "optimizer", "recipe", "scale", "tracking")
# Owners are tested in tests/datasets/core/test_owners.py.
COVERED = {"experiment", "tuned", "hydra", "owners", *SPECS, *SINGLE}
# What else a dataset is used for, and by which method.
OTHER_RECIPES = {"cifar10_adversarial": ("cifar10", "pgd_at")}
# Null in a recipe: they follow from the training rows.
BY_ROWS = ("batch_size", "epochs")


def filled(node: dict[str, Any]) -> dict[str, Any]:
    """A node in which every field has a value."""
    return {
        key: {"path": "a.csv", "epsilons": [1, 2]}.get(key, "a") if value == MISSING else value
        for key, value in node.items()
    }


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))  # type: ignore[assignment]
    return loaded


def merged(node: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether a configuration holds everything that a YAML says, but for interpolations and what follows from data."""
    return all(
        merged(node[key], value)
        if isinstance(value, dict)
        else "${" in str(value) or node[key] == value or (value is None and key in BY_ROWS)
        for key, value in others.items()
        if key != "defaults"
    )


def test_no_yaml_is_left_out() -> None:
    found = {path.relative_to(CONF).parts[0] for path in CONF.rglob("*.yaml")}
    assert found == COVERED | {"config.yaml"}
    assert {path.suffix for path in CONF.rglob("*") if path.is_file()} - {".pyc"} == {".yaml", ".py"}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in SPECS for name in choices(group)])
def test_a_specification_lists_every_field_of_its_class(group: str, name: str) -> None:
    node = filled({key: value for key, value in read(f"{group}/{name}").items() if key != "defaults"})
    spec = build(node, group)
    assert set(node) == {TARGET} | {field.name for field in dataclasses.fields(spec) if field.init}
    assert dump(spec)[TARGET] == node[TARGET]
    assert name_of(node) == name


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in SPECS for name in choices(group)])
def test_a_specification_composes(group: str, name: str, tmp_path: Path) -> None:
    assert name_of(resolve(compose([f"{group}={name}", *overrides(name, tmp_path)]))[group]) == name


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in SINGLE for name in choices(group)])
def test_a_choice_composes_and_says_what_it_says(group: str, name: str, tmp_path: Path) -> None:
    chosen, method = [f"{group}={name}"], "dpsgd"
    if group == "recipe":
        recipe, _, scale = name.partition("/")
        dataset, method = OTHER_RECIPES.get(recipe, (recipe, method))
        chosen = [f"dataset={dataset}", f"recipe={recipe}", f"scale={scale or 'paper'}", *overrides(dataset, tmp_path)]
    if name == "none":
        chosen.append("algorithm._target_=tests.runners.config.test_compose.Open")
    # Without the tuned values, which come after most of them.
    config = resolve(compose([*chosen, f"algorithm={method}", "~tuned"]))
    is_global = "# @package _global_" in (CONF / group / f"{name}.yaml").read_text("utf-8")
    assert merged(config if is_global else config[group], read(f"{group}/{name}"))
    if group == "scale":
        assert config["scale"]["name"] == name


@pytest.mark.parametrize("name", [name for name in choices("privacy") if name.startswith("eps")])
def test_a_budget_is_what_its_name_says(name: str) -> None:
    assert read(f"privacy/{name}")["epsilon"] == float(name.removeprefix("eps").replace("_", "."))


def test_every_dataset_has_a_recipe() -> None:
    assert set(choices("recipe")) >= set(choices("dataset"))


@pytest.mark.parametrize(("dataset", "algorithm"), TUNED)
def test_tuned_values_are_taken_by_their_dataset_and_algorithm(tmp_path: Path, dataset: str, algorithm: str) -> None:
    assert dataset in choices("dataset") and algorithm in choices("algorithm")
    own = overrides(dataset, tmp_path)
    config = resolve(compose([f"dataset={dataset}", f"algorithm={algorithm}", "scale=paper", *own]))
    assert merged(config, tuned(f"{dataset}/{algorithm}"))


@pytest.mark.parametrize(("dataset", "kind", "scale"), AT_SCALES)
def test_values_tuned_for_a_scale_are_taken_there_and_nowhere_else(dataset: str, kind: str, scale: str) -> None:
    said = tuned(f"{dataset}/{kind}/{scale}")
    sharing = [name for of, name in TUNED if of == dataset and merged(tuned(f"{of}/{name}", scale), said)]
    assert said and sharing
    for at in choices("scale"):
        for algorithm in sharing:
            config = resolve(compose([f"dataset={dataset}", f"algorithm={algorithm}", f"scale={at}"]))
            differ = [key for key in said if key not in config or not set(said[key]) <= set(config[key])]
            assert (differ == [] and merged(config, said)) == (at == scale)


def tuned(name: str, scale: str = "paper") -> dict[str, Any]:
    """What a file says, with the one that it shares, which may depend on the scale."""
    said = read(f"tuned/{name}")
    for other in said.pop("defaults", []):
        shared = next(iter(other)).removeprefix("optional ") if isinstance(other, dict) else other
        shared = shared.removeprefix("/tuned/").removesuffix("@_global_")
        below = tuned(f"{shared}/{scale}" if isinstance(other, dict) else shared, scale)
        said = OmegaConf.to_container(OmegaConf.merge(below, said))  # type: ignore[assignment]
    return said


def test_the_files_of_tuned_values_say_something() -> None:
    """The group methods share theirs on two datasets; where nobody tuned, the defaults hold."""
    assert tuned("bank_fraud/azb_weak") == {"optimizer": {"lr": 0.01}, "algorithm": {"group_lr": 0.1, "loss_clip": 10}}
    assert all(tuned("/".join(names)) for names in TUNED)
    assert ("digits", "dpsgd") not in TUNED
    assert resolve(compose(["dataset=digits", "algorithm=dpsgd"]))["optimizer"]["lr"] == 0.1


def test_no_two_yamls_say_the_same() -> None:
    paths = sorted(CONF.rglob("*.yaml"))
    said = [OmegaConf.to_yaml(OmegaConf.load(path), sort_keys=True) for path in paths]
    alike = [path.relative_to(CONF).as_posix() for path, text in zip(paths, said, strict=True) if said.count(text) > 1]
    assert alike == []


# Computed when conf/tuned was conf/pair and every pair had a file of its own; at paper scale, of plans.
IDS_BEFORE = {
    ("bank_fraud", "azb_weak"): "f7531a01f96fbc34",
    ("celeba", "azb_prop"): "afa24dc134786866",
    ("digits", "azb_prop"): "f2d0f74440b43593",
    ("digits", "dpsgd"): "794492765405455d",
    ("unbalanced_mnist", "azb_weak"): "21974eeea9418c4c",
}


@pytest.mark.parametrize(("dataset", "algorithm"), IDS_BEFORE)
def test_shared_and_deleted_files_changed_no_id(dataset: str, algorithm: str) -> None:
    chosen = [f"dataset={dataset}", f"algorithm={algorithm}", "privacy=eps1", "scale=paper", "schedule.plan_only=true"]
    assert run_id(compose(chosen)) == IDS_BEFORE[dataset, algorithm]


@pytest.mark.parametrize(
    ("group", "name", "others"),
    [("launcher", "local", ("ray", "slurm")), ("sweeper", "blocks", ()), ("help", "rawls", ())],
)
def test_hydras_own_groups_are_chosen(group: str, name: str, others: tuple[str, ...]) -> None:
    assert choices(f"hydra/{group}") == (name, *others)
    assert {f"override hydra/{group}": name} in read("config")["defaults"]


@pytest.mark.parametrize("target", EXPERIMENTS)
def test_an_experiment_begins_with_its_command(target: str) -> None:
    first = (CONF / "experiment" / f"{target}.yaml").read_text("utf-8").splitlines()[0]
    assert re.fullmatch(rf"# rawls reproduce {target}( scale=paper)?|# rawls choose .+", first)


@pytest.mark.parametrize("target", EXPERIMENTS)
def test_an_experiment_can_be_planned_and_drawn(target: str) -> None:
    from rawls.analysis.draw.render import KINDS
    from rawls.analysis.read.manifest import Manifest

    asked = plan([f"experiment={target}", "scale=smoke"])
    computed = not asked.experiment or not asked.experiment["blocks"]
    assert {run.config["scale"]["name"] for run in asked.runs} == (set() if computed else {"smoke"})
    assert all(run.config["experiment"] is None for run in asked.runs)
    manifest = Manifest.of(manifest_of(asked))
    assert manifest.draw["kind"] in KINDS
    named = manifest.draw.get("methods", {})
    labels = {re.sub(r" \(.+\)$", "", run["label"]) for run in manifest.runs}
    if asked.experiment and asked.experiment["fitting"]:
        return  # of no paper: methods have the names of their labels
    assert labels <= {*named, *(re.sub(r" \(.+\)$", "", label) for label in named)}
    printed = reported(manifest.paper, manifest.table)
    assert set(printed["method"]) <= set(manifest.methods)


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: path.relative_to(CONF).as_posix())
def test_a_yaml_is_short(path: Path) -> None:
    most = 120 if path.stem == "rates" else 60  # eleven curves, each with ranges of its own
    assert len(path.read_text("utf-8").splitlines()) <= most
