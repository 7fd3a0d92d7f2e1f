"""What a method's file says of it, and the sentence for one that does not name its paper."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from rawls.algorithms.core.about import about
from rawls.algorithms.dpsgd import DpSgd
from rawls.algorithms.sgd import Sgd
from rawls.runners.audit.problem import case_of
from rawls.runners.config.compose import choices
from rawls.runners.config.specifications import build

DOCSTRING = """NEW: one step
(that many take) is enough (Name et al. 2031, Algorithm 2): r (x) for all.

Readings:
- a * b is *this*, `c*` and <x> is
  that; i <= j.
- second

Plain text
goes on.
    x = 1 < y

Then more."""


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A method whose file has this docstring."""

    def made(docstring: str | None) -> Any:
        module = ModuleType("mine", docstring)
        monkeypatch.setitem(sys.modules, "mine", module)
        return type("Mine", (DpSgd,), {"__module__": "mine"})()

    return made


def test_title_paper_file_and_readings_are_taken_apart(documented: Any) -> None:
    found = about(documented(DOCSTRING))
    assert found.title == "NEW: one step (that many take) is enough: r (x) for all."
    assert (found.paper, found.file) == ("Name et al. 2031, Algorithm 2", "mine.py")
    assert found.readings.split("\n\n") == [
        "Readings:",
        "- a * b is \\*this\\*, `c*` and \\<x> is that; i <= j.\n- second",
        "Plain text goes on.",
        "    x = 1 < y",
        "Then more.",
    ]
    assert found.missing is None


@pytest.mark.parametrize("docstring", [None, "Mine.", "Mine (of 2031 rows", "Mine (see `x`).\n\n(Name 2031)"])
def test_a_file_without_its_paper_is_told_what_to_write(documented: Any, docstring: str | None) -> None:
    found = about(documented(docstring))
    assert found.paper == ""
    assert found.missing is not None and found.missing.startswith("mine.py does not name its paper: write in brackets,")
    assert "'(Abadi et al. 2016; ASC paper, Algorithm 1)'" in found.missing


@pytest.mark.parametrize("paper", ["ASC paper, section 4", "Algorithm 1 of the INO-SGD paper", "Zhou and Bassily"])
def test_one_of_the_five_papers_needs_no_year(documented: Any, paper: str) -> None:
    assert about(documented(f"Mine ({paper}).")).paper == paper


@pytest.mark.parametrize("name", choices("algorithm"))
def test_every_method_names_its_paper(name: str) -> None:
    found = about(case_of(name).method)
    assert found.missing is None, found.missing
    assert found.file == f"algorithms/{name}.py"


def test_a_method_is_not_told_by_the_file_it_derives_from() -> None:
    node = {"_target_": "rawls.algorithms.auto_s.AutoS"}
    assert about(build(node, "algorithm")).paper != about(DpSgd()).paper
    assert about(Sgd()).file == "algorithms/sgd.py"
