import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.config import kept
from rawls.runners.config.kept import FOLDER, Kept, fingerprint
from tests.tree import ROOT


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder of the test's own; this process counts as one that has just begun."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept, "_BEGAN", time.time_ns())
    monkeypatch.setattr(kept, "_CLEAN", True)
    return tmp_path / "home" / "rawls" / FOLDER


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that is an hour old."""
    path = tmp_path / "source.yaml"
    path.write_text("lr: 1")
    _age(path)
    return path


def _age(path: Path) -> None:
    os.utime(path, ns=(0, time.time_ns() - 3_600_000_000_000))


def _kept(source: Path) -> Kept:
    return Kept("answers", lambda: {"source": source}, "1.0")


def _keep(source: Path, answer: Any) -> None:
    one = _kept(source)
    one.put("question", answer)
    one.write()


def test_what_one_process_found_the_next_one_reads(source: Path) -> None:
    assert _kept(source).get("question") is None
    _keep(source, {"lr": [1, 0.5, None, "a"]})
    assert _kept(source).get("question") == {"lr": [1, 0.5, None, "a"]}
    assert _kept(source).get("another") is None


def test_an_answer_is_known_at_once_where_it_was_found(source: Path) -> None:
    one = _kept(source)
    assert one.get("question") is None
    one.put("question", 1)
    assert one.get("question") == 1


def test_an_edit_forgets_and_undoing_it_remembers(source: Path) -> None:
    _keep(source, 1)
    source.write_text("lr: 2")
    assert _kept(source).get("question") is None
    source.write_text("lr: 1")
    assert _kept(source).get("question") == 1


def test_what_a_process_read_before_an_edit_is_not_kept(source: Path, home: Path) -> None:
    one = _kept(source)
    one.put("question", 1)
    source.write_text("lr: 2")
    _age(source)
    one.write()
    assert not list(home.glob("*"))


def test_a_file_that_is_younger_than_the_process_may_have_been_read_as_another(source: Path, home: Path) -> None:
    os.utime(source, ns=(0, time.time_ns() + 1_000_000_000))
    _keep(source, 1)
    assert not list(home.glob("*"))


def test_code_that_was_imported_before_may_be_older_than_its_file(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_CLEAN", False)
    _keep(source, 1)
    assert not list(home.glob("*"))


def test_what_json_would_change_is_not_kept(source: Path) -> None:
    _keep(source, {1: "a"})
    assert _kept(source).get("question") is None


def test_a_line_that_was_cut_off_costs_no_other(source: Path, home: Path) -> None:
    _keep(source, 1)
    (path,) = home.glob("*")
    whole = path.read_text()
    path.write_text('["half", {"a"\n' + whole)
    assert _kept(source).get("question") == 1 and _kept(source).get("half") is None


def test_one_flipped_bit_gives_no_other_answer(source: Path, home: Path) -> None:
    """Every bit of the file: a learning rate of 0.5 never comes back as 0.7."""
    _keep(source, {"lr": 0.5})
    (path,) = home.glob("*")
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(changed))
        assert _kept(source).get("question") in ({"lr": 0.5}, None)
    path.write_bytes(whole)
    assert _kept(source).get("question") == {"lr": 0.5}


def test_without_a_home_nothing_is_kept_and_nothing_fails(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    _keep(source, 1)
    assert _kept(source).get("question") is None


def test_answers_that_nobody_asks_for_are_deleted_after_a_month(source: Path, home: Path) -> None:
    _keep(source, 1)
    (old,) = home.glob("*")
    os.utime(old, (0, time.time() - 31 * 86_400))
    source.write_text("lr: 2")
    _age(source)
    _keep(source, 2)
    assert not old.exists() and _kept(source).get("question") == 2


def test_a_fingerprint_tells_names_texts_and_others_apart_but_not_places(tmp_path: Path) -> None:
    for name, text in {"a": "x", "b": "y", "c": "x"}.items():
        (tmp_path / name).write_text(text)
    a, b, c = (tmp_path / name for name in "abc")
    assert fingerprint({"one": a, "two": b}) == fingerprint({"two": b, "one": c})
    prints = {
        fingerprint({"one": a, "two": b}),
        fingerprint({"one": b, "two": a}),
        fingerprint({"one": a}),
        fingerprint({"other": a, "two": b}),
        fingerprint({"one": a, "two": b}, "1"),
    }
    assert len(prints) == 5


_SCRIPT = """
import json, sys
from rawls.runners.config import compose
composed = []
real = compose._composed
compose._composed = lambda *given, **more: composed.append(given) or real(*given, **more)
runs = [compose.composer()(text.split()) for text in sys.argv[1:]]
print(json.dumps({"runs": runs, "composed": len(composed), "torch": "torch" in sys.modules}))
"""


def _composed(*overrides: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _SCRIPT, *overrides]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    return found


def test_what_only_hydra_can_set_is_kept_with_its_choices_unless_it_refers_to_something() -> None:
    # At this scale evaluations follow from the epochs.
    asked = ("scale=paper schedule.epochs=3", "scale=paper schedule.epochs=4", "scale=paper seed=${schedule.epochs}")
    first, second = _composed(*asked), _composed(*asked)
    assert first["runs"] == second["runs"]
    assert [run["schedule"]["evaluations"] for run in second["runs"][:2]] == [3, 4]
    assert second["runs"][2]["seed"] == second["runs"][2]["schedule"]["epochs"]
    assert (second["composed"], _composed(*asked[:2])["composed"]) == (1, 0)  # for the last alone


def test_a_second_process_has_the_same_configurations_without_hydra_and_torch() -> None:
    asked = ("seed=1", "algorithm=idp_sgd owners=digits", "model=tabular_mlp dataset=adult model.widths=[9,9]")
    first, second = _composed(*asked), _composed(*asked)
    assert (first["composed"], first["torch"]) == (3, True)
    assert (second["composed"], second["torch"]) == (0, False)
    assert first["runs"] == second["runs"]
    assert second["runs"][2]["model"]["widths"] == [9, 9]
