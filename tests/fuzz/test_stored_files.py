"""Stored files of any content: never another number, and never an error that is no sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.analysis.draw.render import draw
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest
from rawls.runners.cli.commands import main
from tests.faults.stores import copied, flipped, manifest, runs
from tests.fuzz.cases import count, fuzzed, is_sentence

KIND = "stored files"
ANY: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just([]), st.just({})
)


@pytest.fixture(scope="module")
def root(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(store, tmp_path_factory.mktemp("copied") / "results")


@pytest.fixture(scope="module")
def whole(root: Path) -> tuple[str, dict[str, Any]]:
    """The table, and what is shown of each run."""
    store = load(root)
    return drawn(root, store), numbers(store)


@fuzzed(0.22)
@given(data=st.data())
def test_any_change_of_a_file(root: Path, whole: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    """Of a run, a manifest, the store's format or a lease: the same table, or the run is left out and named."""
    path = data.draw(st.sampled_from(files(root)))
    before = path.read_bytes() if path.exists() else None
    content = changed(data, before or b"{}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)
        count(KIND, look(root, path.name, *whole))
    finally:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


def look(root: Path, name: str, table: str, known: dict[str, Any]) -> str:
    """What became of a store of which this file was changed."""
    try:
        store = load(root)
    except ValueError as error:
        assert name == "store.json" and "newer version" in str(error)
        return "refused in a sentence"
    now = numbers(store)
    for run, found in now.items():
        assert found == known[run] or found is None, (name, run)
    if name.endswith(".json"):
        assert main(["status", f"results.root={root}"]) in ((0, 2) if name == "store.json" else (0,)), name
    try:
        text = drawn(root, store)
    except ValueError as error:
        assert is_sentence(error), (name, str(error))
        assert name == "manifest.json"
        return "refused in a sentence"
    assert text == table or None in now.values(), name
    return "left out, named" if None in now.values() else "accepted as it was meant"


def files(root: Path) -> list[Path]:
    run = runs(root)[0]
    return [
        *sorted(path for path in run.iterdir() if path.suffix != ".safetensors"),
        manifest(root), root / "store.json", root / "runs" / f"{run.name}.lease.1", root / "workers" / "ab.json",
        root / "sweeps" / "ab.json",
    ]  # fmt: skip


def numbers(store: Store) -> dict[str, Any]:
    """What is shown of each run; None of one that is left out."""
    done = set(store.runs.loc[store.runs["status"] == "done", "run_id"])
    of_groups = {run: rows.astype(str).to_csv(index=False) for run, rows in store.groups.groupby("run_id")}
    of_runs = {row["run_id"]: str(row) for row in store.runs.astype(str).to_dict("records")}
    return {run: (of_runs[run], of_groups[run]) if run in done else None for run in of_runs}


def drawn(root: Path, store: Store) -> str:
    found = list((root / "targets").rglob("manifest.json"))
    if not found:
        raise ValueError("there is no manifest.json: nothing is drawn")
    return draw(Manifest.read(found[0]), store).text


def changed(data: st.DataObject, content: bytes) -> bytes | None:
    """The file with one thing changed: its bytes, or a value of its JSON; None is no file."""
    kind = data.draw(st.integers(0, 7))
    if kind == 0:
        return None
    if kind == 1:
        return content[: data.draw(st.integers(0, len(content)))]
    if kind == 2:
        return data.draw(st.binary(max_size=40))
    if kind == 3:
        return json.dumps(data.draw(ANY)).encode()
    if kind in (4, 5) and content:
        return flipped(content, data.draw(st.integers(0, 8 * len(content) - 1)))
    try:
        fields = json.loads(content)
    except ValueError:
        place = data.draw(st.integers(0, len(content)))
        return content[:place] + data.draw(st.binary(max_size=8)) + content[place:]
    return json.dumps(with_a_change(data, fields)).encode()


def with_a_change(data: st.DataObject, node: Any) -> Any:
    """One value replaced by any, at a random depth."""
    if isinstance(node, dict) and node and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(node)))
        return {**node, key: with_a_change(data, node[key])}
    if isinstance(node, list) and node and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(node) - 1))
        return [*node[:place], with_a_change(data, node[place]), *node[place + 1 :]]
    return data.draw(ANY)
