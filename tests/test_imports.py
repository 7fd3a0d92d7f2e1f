"""The import rules of the house: which room may import which, by which name, and what no room may import."""

import ast
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
# The command line and Hydra's `-m` hand drawing to analysis, and the bench measures its pages: there alone, and only
# when a function is called.
LAZILY = ("runners/cli/", "runners/sweeps/hydra_plugin.py", "runners/bench/pages.py")
# What is stored is written once; analysis reads it there, and nothing else of ours.
WHAT_IS_STORED = ("rawls.runners.store.stored", "rawls.runners.store.checksums")
# Analysis reads saved results on machines without torch; these bring it along.
NEVER = {"analysis": frozenset({"torch", "torchvision", "opacus"})}


def imported(tree: ast.AST, *, inside_function: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Line, dotted name and whether it happens when a function is called, of every absolute import."""
    for node in ast.iter_child_nodes(tree):
        lazy = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((node.lineno, f"{module}.{alias.name}", lazy) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__" | "run_module")
                | ast.Attribute(attr="import_module" | "run_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module, lazy
        yield from imported(node, inside_function=lazy)


def fault(path: str, module: str, *, lazy: bool) -> str | None:
    """What is wrong with this import in this file (path relative to the root)."""
    room = path.partition("/")[0]
    top, _, below = module.partition(".")
    other = below.partition(".")[0]
    if top in PACKAGES:
        return f"names {top} without rawls: another package may have that name"
    if top in NEVER.get(room, frozenset()) or (top == "tests" and room != "tests"):
        return f"{room} must not import {top}"
    if top != "rawls" or room in ("tests", other):
        return None
    if other not in PACKAGES:
        return "import what it needs from its module: `rawls` itself is for users"
    if other in MAY_IMPORT[room] or (other == "analysis" and lazy and path.startswith(LAZILY)):
        return None
    if room == "analysis" and f"{module}.".startswith(tuple(f"{name}." for name in WHAT_IS_STORED)):
        return None
    return f"{room} must not import {other}"


def faults(path: str, source: str) -> list[str]:
    """One sentence for each line of this file that imports what the house does not allow."""
    found = {(line, fault(path, module, lazy=lazy)) for line, module, lazy in imported(ast.parse(source))}
    return [f"{path}:{line}: {sentence}" for line, sentence in sorted(found, key=str) if sentence]


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_no_file_imports_what_its_room_may_not() -> None:
    assert all(sources(name) for name in (*PACKAGES, "tests"))
    assert [
        sentence
        for path in sources(*PACKAGES, "tests")
        for sentence in faults(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("accounting/events.py", "import rawls.algorithms.asc"),
        ("accounting/events.py", "from rawls import algorithms"),
        ("accounting/events.py", "import rawls"),
        ("accounting/events.py", "def late():\n    from rawls.runners.training import fleet"),
        ("algorithms/asc.py", "from rawls.datasets.core.base import Data"),
        ("algorithms/asc.py", "if True:\n    import numpy, rawls.runners"),
        ("algorithms/asc.py", "from accounting.events import Event"),
        ("models/engines/fused.py", "import importlib\ndef late():\n    importlib.import_module('rawls.datasets')"),
        ("runners/cli/commands.py", "from rawls import analysis"),
        ("runners/training/fleet.py", "def late():\n    import rawls.analysis.pages.report"),
        ("runners/training/fleet.py", "import tests.tree"),
        ("analysis/draw/tables.py", "def late():\n    import torch.nn as nn"),
        ("analysis/draw/tables.py", "from opacus import accountants"),
        ("analysis/read/load.py", "from rawls.runners.store import leases"),
        ("analysis/read/load.py", f"import {WHAT_IS_STORED[0]}_and_more"),
        ("conf/schema.py", "from rawls.accounting.events import Neighbouring"),
        ("tests/test_house.py", "import datasets"),
        ("tests/test_house.py", "from analysis import load"),
    ],
)
def test_a_forbidden_edge_is_caught(path: str, source: str) -> None:
    assert len(faults(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "accounting/mechanism/ledger.py",
            "from rawls.accounting.events import Event\nfrom . import plan\nimport torch",
        ),
        ("algorithms/asc.py", "import rawls.accounting, rawls.models.engines.base, rawls.algorithms.core.method"),
        ("runners/training/fleet.py", "from rawls.datasets.core.base import Data\nfrom rawls import conf"),
        ("runners/cli/commands.py", "def render():\n    from rawls.analysis.pages import report"),
        ("analysis/draw/tables.py", "import pandas\nimport torchless"),
        ("analysis/read/load.py", f"from {WHAT_IS_STORED[0]} import FORMAT\nfrom {WHAT_IS_STORED[1]} import verify"),
        ("tests/test_house.py", "import rawls\nfrom rawls import analysis\nfrom tests.tree import ROOT"),
    ],
)
def test_an_allowed_edge_is_not(path: str, source: str) -> None:
    assert faults(path, source) == []


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level names loaded in a fresh interpreter after this statement."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    printed = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True)
    return set(printed.split())


def test_analysis_runs_without_torch() -> None:
    names = [
        ".".join(["rawls", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        for path in sources("analysis")
        if path.name != "__main__.py"
    ]
    assert names
    assert "torch" not in modules_loaded_by("import " + ", ".join(names))


def test_the_command_line_answers_without_torch() -> None:
    loaded = modules_loaded_by("import rawls.runners.cli.commands")
    assert not loaded & {"torch", "opacus", "wandb", "pandas", "matplotlib"}
