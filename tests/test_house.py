"""House rules that no linter knows: every YAML has its code, files stay short, nothing local is committed."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tree import PACKAGES, ROOT, files, offences

MAX_LINES = 400
GROUP_FOLDERS = {"algorithm": "algorithms", "dataset": "datasets", "model": "models"}
RECIPES = sorted(path for group in GROUP_FOLDERS for path in (ROOT / "conf" / group).rglob("*.yaml"))
EXPERIMENTS = sorted((ROOT / "conf" / "experiment").rglob("*.yaml"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(loaded, dict), f"{relative(path)} is empty or no mapping"
    return loaded


def target_of(path: Path) -> str | None:
    """The `_target_` of a recipe, or of the recipe of the same folder that it starts from."""
    recipe = read(path)
    if "_target_" in recipe:
        return str(recipe["_target_"])
    bases = [path.parent / f"{base}.yaml" for base in recipe.get("defaults", []) if base != "_self_"]
    return next((target for base in bases if (target := target_of(base))), None)


def defines(path: Path, name: str) -> bool:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = ast.ClassDef | ast.FunctionDef
    return any(isinstance(node, kinds) and node.name == name for node in tree.body)


def missing_return_annotations(source: str) -> list[str]:
    return [
        f"line {node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is None
    ]


def test_there_are_recipes_and_experiments() -> None:
    groups = {path.relative_to(ROOT / "conf").parts[0] for path in RECIPES}
    assert groups == set(GROUP_FOLDERS)
    assert EXPERIMENTS


@pytest.mark.parametrize("path", RECIPES, ids=relative)
def test_a_recipe_names_a_class_of_its_folder(path: Path) -> None:
    target = target_of(path)
    assert target, f"{relative(path)} has no _target_"
    folder, *inner, name = target.split(".")
    assert folder == GROUP_FOLDERS[path.relative_to(ROOT / "conf").parts[0]]
    module = ROOT.joinpath(folder, *inner).with_suffix(".py")
    assert module.is_file(), f"{relative(path)} names {relative(module)}, which does not exist"
    assert defines(module, name), f"{relative(module)} does not define {name}"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=relative)
def test_an_experiment_belongs_to_a_paper_with_reported_numbers(path: Path) -> None:
    paper = path.parent.name
    assert path.parent.parent == ROOT / "conf" / "experiment", "experiments lie in conf/experiment/<paper>/"
    assert (ROOT / "analysis" / "reported" / f"{paper}.csv").is_file()


def test_every_folder_is_a_package() -> None:
    """Hydra refuses a conf without __init__.py, and finds YAML through the package."""
    assert [name for name in PACKAGES if not (ROOT / name / "__init__.py").is_file()] == []


def test_files_stay_short() -> None:
    sources = [path for path in files() if path.suffix == ".py"]
    lengths = {relative(path): len(path.read_text("utf-8").splitlines()) for path in sources}
    assert {name: length for name, length in lengths.items() if length >= MAX_LINES} == {}


def test_every_function_says_what_it_returns() -> None:
    sources = {path: path.read_text("utf-8") for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")}
    found = {relative(path): missing_return_annotations(source) for path, source in sources.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}
    assert missing_return_annotations("def f() -> int:\n    def g(): ...\n    return 1") == ["line 2: g"]


def test_nothing_is_in_the_tree_that_must_not_be_committed() -> None:
    assert [sentence for path in files() for sentence in offences(relative(path), path.read_bytes())] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "pip install --index-url https://" + "pypi" + ".org/simple rawls"),
        ("package-lock.json", "https://registry." + "npmjs" + ".org/x"),
        ("conf/config.yaml", "root: /" + "work/main/data"),
        ("Makefile", "cp /" + "tmp/w/venv ."),
        ("runners/run.py", "x" * 1_000_001),
        ("datasets/mnist.npz", ""),
        ("datasets/rows.csv", "a,b"),
    ],
)
def test_what_must_not_be_committed_is_caught(name: str, content: str) -> None:
    assert len(list(offences(name, content.encode()))) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "homework/, a framework/ folder, ../shared/data, $" + "{x}/" + "work/, /tmp/whatever"),
        ("analysis/reported/asc.csv", "paper,table"),
        ("LICENSE", "http://www.apache.org/licenses/"),
    ],
)
def test_what_may_be_committed_is_not(name: str, content: str) -> None:
    assert list(offences(name, content.encode())) == []
