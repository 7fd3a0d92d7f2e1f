"""C that is compiled when it is needed, wherever that may be, and is never needed."""

import logging
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rawls.models.engines.kernels import compiled
from tests.tree import ROOT

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and nothing remembered of other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled, "_loaded", {})
    compiled.library.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.c"
    path.write_text("int answer(void) { return 42; }\n")
    return path


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "rawls" / "kernels").iterdir())


def answer_elsewhere(source: Path) -> int:
    """What the library of another process says."""
    asked = (
        "import sys, pathlib; from rawls.models.engines.kernels import compiled; "
        "print(compiled.library(pathlib.Path(sys.argv[1])).answer())"
    )
    command = [sys.executable, "-c", asked, str(source)]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


@needs_compiler
def test_a_source_is_compiled_once_for_all_processes(source: Path, tmp_path: Path) -> None:
    library = compiled.library(source)
    assert library is not None and library.answer() == 42
    (made,) = files(tmp_path)
    assert compiled.loaded() == {"answer": made.stem.removeprefix("answer-")}
    before = made.stat()
    compiled.library.cache_clear()  # as in another process
    assert compiled.library(source) is not None
    assert files(tmp_path) == [made] and made.stat().st_mtime_ns == before.st_mtime_ns


@needs_compiler
@pytest.mark.parametrize("planted", ["writable", "a link"])
def test_a_file_that_others_could_write_to_is_made_again(source: Path, tmp_path: Path, planted: str) -> None:
    """The folder may have been open to them for a while."""
    compiled.library(source)
    (made,) = files(tmp_path)
    assert compiled.is_ours_alone(made)
    theirs = tmp_path / "theirs.so"
    theirs.write_bytes(b"no library at all")
    made.unlink()
    if planted == "a link":
        made.symlink_to(theirs)
    else:
        made.write_bytes(theirs.read_bytes())
        made.chmod(0o777)
    compiled.library.cache_clear()
    library = compiled.library(source)
    assert library is not None and library.answer() == 42
    assert compiled.is_ours_alone(made) and theirs.read_bytes() == b"no library at all"


@needs_compiler
def test_a_changed_source_is_compiled_again(source: Path, tmp_path: Path) -> None:
    compiled.library(source)
    source.write_text("int answer(void) { return 43; }\n")
    compiled.library.cache_clear()
    library = compiled.library(source)
    assert library is not None and library.answer() == 43
    assert len(files(tmp_path)) == 2


@needs_compiler
def test_a_changed_header_is_compiled_again(source: Path, tmp_path: Path) -> None:
    source.write_text('#include "truth.h"\nint answer(void) { return TRUTH; }\n')
    for truth in (42, 43):
        (tmp_path / "truth.h").write_text(f"enum {{ TRUTH = {truth} }};\n")
        compiled.library.cache_clear()
        library = compiled.library(source)
        assert library is not None and library.answer() == truth


@needs_compiler
def test_processes_that_begin_together_all_get_it(source: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer_elsewhere, [source] * 4)) == [42] * 4
    assert len(files(tmp_path)) == 1


@needs_compiler
@pytest.mark.parametrize("home", ["cannot be written", "unknown"])
def test_without_a_home_it_is_compiled_for_the_process(
    home: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if home == "unknown":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", lambda: Path("~nobody-of-this-name").expanduser())
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    library = compiled.library(source)
    assert library is not None and library.answer() == 42


@needs_compiler
@pytest.mark.parametrize("command", ["", " ", "env cc", "cc -g"])
def test_cc_may_have_words(command: str, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", command)
    library = compiled.library(source)
    assert library is not None and library.answer() == 42


def test_without_a_compiler_there_is_no_library(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with caplog.at_level(logging.INFO):
        assert compiled.library(source) is None
    assert "no C compiler" in caplog.text
    assert compiled.loaded() == {}


@needs_compiler
def test_a_source_that_does_not_compile_says_why(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    source.write_text('#error "not for this processor"\n')
    with caplog.at_level(logging.INFO):
        assert compiled.library(source) is None
    assert "not for this processor" in caplog.text


def test_a_compiler_that_fails_is_no_compiler(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(broken))
    assert compiled.library(source) is None


@needs_compiler
def test_nobody_else_may_put_a_library_into_the_cache(source: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        compiled.library(source)
    finally:
        os.umask(before)
    folder = tmp_path / "cache" / "rawls" / "kernels"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@needs_compiler
def test_what_others_could_have_put_there_is_not_loaded(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.c"
    other.write_text("int answer(void) { return 666; }\n")
    for each in (source, other):
        assert compiled.library(each) is not None
    ours, theirs = files(tmp_path)
    theirs.replace(ours)
    assert answer_elsewhere(source) == 666
    ours.parent.chmod(0o770)
    assert answer_elsewhere(source) == 42
