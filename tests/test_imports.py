"""The import rules of the house: which folder may import which, and what no folder may import."""

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT

MAY_IMPORT: dict[str, frozenset[str]] = {
    "conf": frozenset(),
    "accounting": frozenset(),
    "datasets": frozenset(),
    "models": frozenset(),
    "algorithms": frozenset({"accounting", "models"}),
    "runners": frozenset({"conf", "accounting", "datasets", "models", "algorithms"}),
    "analysis": frozenset(),
}
# What is stored is written once, for those who train and those who only read.
ALSO = {"analysis": frozenset({"runners.stored"})}
# The command line hands rendering to analysis (of `rawls train -m` it is Hydra's plugin that ends the sweep), and the
# bench measures its pages: there alone, and only when a function is called.
LAZILY = {
    name: frozenset({"analysis"}) for name in ("runners/cli.py", "runners/hydra_plugin.py", "runners/bench/pages.py")
}
# Analysis reads saved results on machines without torch; these bring it along.
NEVER = {"analysis": frozenset({"torch", "torchvision", "opacus"})}


def imported(tree: ast.AST, *, inside_function: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Line, module and whether it happens when a function is called, of every absolute import."""
    for node in ast.iter_child_nodes(tree):
        lazy = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module, lazy
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__" | "run_module")
                | ast.Attribute(attr="import_module" | "run_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module, lazy
        yield from imported(node, inside_function=lazy)


def forbidden(path: str, source: str) -> list[str]:
    """One sentence for each import of this file (path relative to the root) that the house does not allow."""
    folder = path.partition("/")[0]
    found = []
    for line, module, lazy in imported(ast.parse(source)):
        name = module.partition(".")[0]
        allowed = MAY_IMPORT[folder] | {folder} | (LAZILY.get(path, frozenset()) if lazy else frozenset())
        ours_but_not_allowed = (
            name in {*PACKAGES, "tests"} and name not in allowed and module not in ALSO.get(folder, ())
        )
        if ours_but_not_allowed or name in NEVER.get(folder, frozenset()):
            found.append(f"{path}:{line}: {folder} must not import {name}")
    return found


def sources() -> list[Path]:
    return sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))


def test_no_file_imports_what_its_folder_may_not() -> None:
    assert sources()
    assert [
        sentence
        for path in sources()
        for sentence in forbidden(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("accounting/events.py", "import algorithms.asc"),
        ("accounting/events.py", "def late():\n    from runners import fleet"),
        ("algorithms/asc.py", "from datasets.base import Data"),
        ("algorithms/asc.py", "if True:\n    import numpy, runners"),
        ("models/fused.py", "import importlib\ndef late():\n    importlib.import_module('datasets')"),
        ("runners/cli.py", "import analysis"),
        ("runners/run.py", "def late():\n    import analysis.report"),
        ("runners/run.py", "import tests.tree"),
        ("analysis/tables.py", "def late():\n    import torch.nn as nn"),
        ("analysis/tables.py", "from opacus import accountants"),
        ("analysis/tables.py", "from runners import stored"),
        ("analysis/tables.py", "from runners.store import Store"),
        ("models/fused.py", "from runners.stored import RUNS"),
        ("conf/schema.py", "from accounting.events import Neighbouring"),
    ],
)
def test_a_forbidden_edge_is_caught(path: str, source: str) -> None:
    assert len(forbidden(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("accounting/ledger.py", "from accounting.events import Event\nfrom . import events\nimport torch"),
        ("algorithms/asc.py", "import accounting, models.engine, algorithms.base"),
        ("runners/run.py", "from datasets.base import Data\nfrom algorithms import asc\nimport conf"),
        ("runners/cli.py", "def render():\n    from analysis import report"),
        ("analysis/tables.py", "import pandas\nimport torchless"),
        ("analysis/tables.py", "from runners.stored import RUNS"),
    ],
)
def test_an_allowed_edge_is_not(path: str, source: str) -> None:
    assert forbidden(path, source) == []


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level names loaded in a fresh interpreter after this statement."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    printed = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True)
    return set(printed.split())


def test_analysis_runs_without_torch() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources()
        if path.relative_to(ROOT).parts[0] == "analysis" and path.name != "__main__.py"
    ]
    assert names
    assert "torch" not in modules_loaded_by("import " + ", ".join(names))


def test_the_command_line_answers_without_torch() -> None:
    assert not modules_loaded_by("import runners.cli") & {"torch", "opacus", "wandb", "pandas", "matplotlib"}


def test_no_dependency_is_imported_by_the_name_of_one_of_our_folders() -> None:
    owners = importlib.metadata.packages_distributions()
    assert {name: set(owners[name]) - {"rawls"} for name in (*PACKAGES, "tests") if name in owners} == {
        name: set() for name in (*PACKAGES, "tests") if name in owners
    }
