"""House rules that no linter knows: every YAML has its code, files stay short, nothing local is committed."""

import ast
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tree import PACKAGES, ROOT, files, offences

MAX_LINES = 400
GROUP_FOLDERS = {"algorithm": "algorithms", "dataset": "datasets", "model": "models"}
RECIPES = sorted(path for group in GROUP_FOLDERS for path in (ROOT / "conf" / group).rglob("*.yaml"))
EXPERIMENTS = sorted((ROOT / "conf" / "experiment").rglob("*.yaml"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "algorithms/_template.py")]
FOLDERS = (*PACKAGES, "tests", "docs")


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


def paths_named(text: str) -> set[str]:
    """Every file or folder of the repository that a document names; `<name>` stands for the reader's own."""
    inside = re.findall(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w/.<>-]*)", text)
    beside = re.findall(r"`(\w+\.md)`", text)
    return {name.rstrip(".") for name in (*inside, *beside) if "<" not in name}


def test_there_are_recipes_and_experiments() -> None:
    groups = {path.relative_to(ROOT / "conf").parts[0] for path in RECIPES}
    assert groups == set(GROUP_FOLDERS)
    assert EXPERIMENTS


@pytest.mark.parametrize("path", RECIPES, ids=relative)
def test_a_recipe_names_a_class_of_its_folder(path: Path) -> None:
    target = target_of(path)
    assert target, f"{relative(path)} has no _target_"
    root, folder, *inner, name = target.split(".")
    assert root == "rawls"
    assert folder == GROUP_FOLDERS[path.relative_to(ROOT / "conf").parts[0]]
    module = ROOT.joinpath(folder, *inner).with_suffix(".py")
    assert module.is_file(), f"{relative(path)} names {relative(module)}, which does not exist"
    assert defines(module, name), f"{relative(module)} does not define {name}"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=relative)
def test_an_experiment_belongs_to_a_paper_with_reported_numbers(path: Path) -> None:
    """But for those that compare with none: they lie beside the papers' folders, and leave out what does not fit."""
    if path.parent == ROOT / "conf" / "experiment":
        assert read(path)["fitting"] is True
        return
    assert path.parent.parent == ROOT / "conf" / "experiment", "experiments lie in conf/experiment/<paper>/"
    assert (ROOT / "analysis" / "reported" / f"{path.parent.name}.csv").is_file()


@pytest.mark.parametrize("document", [*DOCUMENTS, *PAGES], ids=relative)
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    named = paths_named(document.read_text("utf-8"))
    assert len(named) > 5 or document in PAGES
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_paths_are_found_in_code_in_tables_and_at_the_end_of_a_sentence() -> None:
    text = (
        "`runners/gone.py`, | algorithms/x.py | and analysis/draw/kinds/. `TODO.md`; "
        "conf/tuned/<name>/a.yaml, my_conf/a"
    )
    assert paths_named(text) == {"runners/gone.py", "algorithms/x.py", "analysis/draw/kinds/", "TODO.md"}


def test_the_readmes_tables_have_the_folders_and_methods_there_are() -> None:
    """A method that is being added needs no row yet."""
    methods, folders = (ROOT / "README.md").read_text("utf-8").split("## Methods")[1].split("## Where things are")
    assert set(re.findall(r"^\| (\w+) \|", folders, re.MULTILINE)) == {"folder", *FOLDERS}
    named = re.findall(r"^\| `(\w+)` \| `algorithms/(\w+)\.py` \|", methods, re.MULTILINE)
    assert named and all(name == file for name, file in named)
    assert {name for name, _ in named} <= {path.stem for path in (ROOT / "conf" / "algorithm").glob("*.yaml")}


def test_hooks_before_a_commit_are_those_of_make_lint() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe is not None
    commands = [line.strip().replace("$(PYTHON)", ".venv/bin/python") for line in recipe[1].splitlines()]
    assert [hook["entry"] for hook in local["hooks"]] == commands
    assert local["repo"] == "local" and {hook["language"] for hook in local["hooks"]} == {"system"}


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
    ("member", "content", "number"),
    [
        ("config.yaml", "root: data", 0),
        ("history.jsonl", "{}", 0),
        ("config.yaml", "root: /" + "work/main/data", 1),
        ("weights.safetensors", "", 1),
    ],
)
def test_a_recorded_run_is_looked_into(member: str, content: str, number: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        about = tarfile.TarInfo(member)
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content.encode()))
    assert len(list(offences("analysis/reproduced/runs/0.tar.xz", buffer.getvalue()))) == number
    assert len(list(offences("analysis/reproduced/0.tar.xz", buffer.getvalue()))) == 1, "nowhere else"


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
