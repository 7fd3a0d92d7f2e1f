"""Records of any content: taken as they were written, or refused by a sentence; nothing lies anywhere else."""

import io
import lzma
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.runners.config.errors import ConfigError
from rawls.runners.store.records import path_of, record, take
from rawls.runners.store.results_store import Store
from tests.faults.stores import copied, flipped, runs
from tests.fuzz.cases import count, fuzzed, is_sentence

KIND = "archives"
NAMES = ["../x", "/tmp/x", "summary.json", "./summary.json", "checkpoint.pt", "a/b", "", "ε", "x" * 300, "config.yaml"]
TYPES = [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]


@pytest.fixture(scope="module")
def recorded(store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A whole record, and its run."""
    run, records = runs(store)[0].name, tmp_path_factory.mktemp("records")
    record(Store(copied(store, tmp_path_factory.mktemp("copied") / "results")), run, records)
    return path_of(records, run), run


@fuzzed(0.5)
@given(data=st.data())
def test_any_archive(recorded: tuple[Path, str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One of other bytes, of members of other names, kinds or contents, or of a run of another name."""
    whole, run = recorded
    place = tmp_path_factory.mktemp("place")
    store, records = Store(place / "results"), place / "records"
    store.root.mkdir()
    records.mkdir()
    path_of(records, run).write_bytes(changed(data, whole.read_bytes()))
    before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    try:
        assert take(store, run, records)
        assert contents(store.folder(run)) == members(whole.read_bytes())
        count(KIND, "accepted as it was meant")
    except ConfigError as error:
        assert is_sentence(error), str(error)
        assert store.done() == []
        count(KIND, "refused in a sentence")
    assert before.keys() == {*place.iterdir()}
    assert {path.name for path in store.root.iterdir()} <= {"runs"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as found:
        return {member.name: found.extractfile(member).read() for member in found}  # type: ignore[union-attr]


def changed(data: st.DataObject, content: bytes) -> bytes:
    kind = data.draw(st.integers(0, 4))
    if kind == 0:
        return flipped(content, data.draw(st.integers(0, 8 * len(content) - 1)))
    if kind == 1:
        return content[: data.draw(st.integers(0, len(content)))]
    if kind == 2:
        inner = lzma.decompress(content)
        return lzma.compress(flipped(inner, data.draw(st.integers(0, 8 * len(inner) - 1))), preset=0)
    files = members(content)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=0) as archive:
        for name, text in files.items():
            if kind == 3 or not data.draw(st.booleans()):
                add(archive, name, text)
        if kind == 3:
            called, holds, what = st.sampled_from(NAMES), st.binary(max_size=9), st.sampled_from(TYPES)
            add(archive, data.draw(called), data.draw(holds), data.draw(what))
    return buffer.getvalue()


def add(archive: tarfile.TarFile, name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    member.size = len(content) if kind == tarfile.REGTYPE else 0
    archive.addfile(member, io.BytesIO(content[: member.size]))
