import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.checksums import verify
from rawls.runners.store.records import path_of, record, recorded, take
from rawls.runners.store.results_store import Store

RUN = ["algorithm=dpsgd", "dataset=digits", "model=logistic", "scale=smoke", "seed=0", "tracking=off"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished run that has weights."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *RUN]) == 0
    return folder / "results"


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Store:
    return Store(Path(shutil.copytree(trained, tmp_path / "results")))


def only(store: Store) -> str:
    (run_id,) = store.done()
    return run_id


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def test_a_run_comes_back_as_it_was_but_for_its_weights(store: Store, tmp_path: Path) -> None:
    run_id, records, other = only(store), tmp_path / "records", Store(tmp_path / "other")
    assert record(store, run_id, records)
    other.root.mkdir()
    assert take(other, run_id, records)
    assert other.done() == recorded(records) == [run_id]
    theirs, ours = other.folder(run_id), store.folder(run_id)
    assert verify(theirs) == []
    not_recorded = {"weights.safetensors", "inputs.json"}
    assert {path.name for path in ours.iterdir()} - {path.name for path in theirs.iterdir()} == not_recorded
    for path in theirs.iterdir():
        if path.name != "checksums.json":
            assert path.read_bytes() == (ours / path.name).read_bytes()
    kept, all_of_them = (json.loads((folder / "checksums.json").read_bytes()) for folder in (theirs, ours))
    assert kept == {name: value for name, value in all_of_them.items() if name not in not_recorded}
    assert sorted(path.name for path in other.root.iterdir()) == ["runs"], "nothing temporary is left"


def test_the_same_run_is_recorded_once_and_another_training_of_it_is_refused(store: Store, tmp_path: Path) -> None:
    run_id, records = only(store), tmp_path / "records"
    assert record(store, run_id, records)
    before = path_of(records, run_id).read_bytes()
    assert not record(store, run_id, records)
    files = unpacked(path_of(records, run_id))
    path_of(records, run_id).write_bytes(packed(files | {"environment.json": b"{}"}))
    with pytest.raises(ConfigError, match="is another training of run"):
        record(store, run_id, records)
    path_of(records, run_id).unlink()
    assert record(store, run_id, records)
    assert path_of(records, run_id).read_bytes() == before, "no times or owners of files"


def test_a_store_that_knows_the_run_keeps_its_own(store: Store, tmp_path: Path) -> None:
    run_id, records = only(store), tmp_path / "records"
    record(store, run_id, records)
    assert not take(store, run_id, records)
    assert (store.folder(run_id) / "weights.safetensors").exists()
    begun = Store(tmp_path / "begun")
    begun.folder(run_id, "running").mkdir(parents=True)
    assert not take(begun, run_id, records)
    assert begun.done() == []


def test_a_damaged_run_is_not_recorded(store: Store, tmp_path: Path) -> None:
    run_id = only(store)
    with open(store.folder(run_id) / "history.jsonl", "a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(ConfigError, match="history.jsonl is not what was written"):
        record(store, run_id, tmp_path / "records")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"summary.json": b"{}"}, "a checksum differs"),
        ({"checksums.json": b"{}"}, "a checksum differs"),
        ({"../../escaped": b"x"}, "which no record does"),
        ({"weights.safetensors": b"x"}, "which no record does"),
    ],
)
def test_a_record_that_was_changed_is_refused(
    store: Store, tmp_path: Path, change: dict[str, bytes], sentence: str
) -> None:
    run_id, records, other = only(store), tmp_path / "records", Store(tmp_path / "other")
    other.root.mkdir()
    record(store, run_id, records)
    path = path_of(records, run_id)
    path.write_bytes(packed(unpacked(path) | change))
    with pytest.raises(ConfigError, match=sentence):
        take(other, run_id, records)
    assert other.done() == [] and not (tmp_path / "escaped").exists()


def test_a_record_under_another_runs_name_or_cut_short_is_refused(store: Store, tmp_path: Path) -> None:
    run_id, records, other = only(store), tmp_path / "records", Store(tmp_path / "other")
    other.root.mkdir()
    record(store, run_id, records)
    renamed = "0" * 16
    path_of(records, run_id).rename(path_of(records, renamed))
    with pytest.raises(ConfigError, match=f"holds run {run_id}"):
        take(other, renamed, records)
    content = path_of(records, renamed).read_bytes()
    path_of(records, renamed).write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigError, match="cannot be read"):
        take(other, renamed, records)
    assert other.done() == []


def test_a_run_that_names_a_folder_of_one_machine_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *RUN, f"results.root={tmp_path / 'there'}"]) == 0
    there = Store(tmp_path / "there")
    with pytest.raises(ConfigError, match="names a folder of this machine, results.root="):
        record(there, only(there), tmp_path / "records")
