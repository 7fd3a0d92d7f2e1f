import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from rawls.models.engines.kernels import compiled, conv2d
from rawls.runners.store import environment


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", "-C", str(folder), *identity, *arguments], text=True).strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of one file of code."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    environment.code_version.cache_clear()
    folder = tmp_path / "clone"
    (folder / "runners").mkdir(parents=True)
    (folder / "runners" / "fleet.py").write_text("one")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def test_the_commit_is_named_and_notes_do_not_make_it_dirty(repository: Path) -> None:
    (repository / "notes.md").write_text("a note")
    (repository / "tests").mkdir()
    (repository / "tests" / "test_new.py").write_text("a test")
    assert environment.code_version(repository) == (git(repository, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("name", ["runners/training/fleet.py", "conf/new.yaml"])
def test_changed_and_new_code_makes_it_dirty(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("two")
    assert environment.code_version(repository) == (git(repository, "rev-parse", "HEAD"), True)


def test_an_installed_copy_inside_another_repository_has_no_commit(repository: Path) -> None:
    assert environment.code_version(repository / "runners") == (None, None)
    assert environment.code_version(repository.parent) == (None, None)


def test_it_says_what_numbers_depend_on_and_not_whose_machine_it_is() -> None:
    conv2d.kernel()
    described = environment.describe("cpu")
    assert described["versions"]["torch"] == torch.__version__
    assert compiled.loaded().items() <= described["versions"].items()
    assert described["num_threads"] == torch.get_num_threads()
    assert described["device"] == "cpu"
    assert described["device_name"] == described["cpu"] != ""
    text = json.dumps(described)
    private = [str(Path.home()), str(environment.ROOT), os.getcwd()]
    assert [secret for secret in private if secret != "/" and secret in text] == []
    assert socket.gethostname() not in {value for value in described.values() if isinstance(value, str)}
