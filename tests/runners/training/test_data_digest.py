"""Data that no checksum pins are part of a run's id: an edited file is another run, never the old numbers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rawls.datasets.core import base
from rawls.runners.config.compose import Composer, compose, look_also_in, resolve, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.schedule.launcher import train
from rawls.runners.store.stored import LEDGER
from rawls.runners.training import setup

MODULE = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from rawls.datasets.core.base import Data, Dataset, InMemory, Provenance
from rawls.datasets.core.splits import Split
from rawls.datasets.core.sources import digest_of


@dataclass(frozen=True, kw_only=True)
class {name}(Dataset):
    name: ClassVar[str] = "rows"
    group_names: ClassVar[tuple[str, ...]] = ("few", "many")
    minority_groups: ClassVar[tuple[int, ...]] = (0,)
    paper_group_sizes = None

    def read(self, root: Path, provenance: Provenance) -> Data:
        table = np.loadtxt(root / "rows.csv", delimiter=",", dtype=np.float32)
        groups = torch.from_numpy(table[:, -1].astype(np.int64))
        rows = np.arange(len(table))
        return Data(
            inputs=InMemory(torch.from_numpy(table[:, :-1].copy())),
            labels=groups,
            groups=groups,
            num_classes=2,
            provenance="real",
            sources={{}},
            splits=lambda seed: Split(rows[:60], rows[60:80], rows[80:]),
        )

    def simulate(self) -> Data:
        raise ValueError("there is no twin")

{digest}
"""
BY_FILE = """    def digest(self, root: Path) -> str | None:
        return digest_of([root / "rows.csv"])
"""


@pytest.fixture(params=["by_content", "by_file"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A dataset of the user's own: one class and one YAML, which pins nothing."""
    name, own = ("ByFile", BY_FILE) if request.param == "by_file" else ("ByContent", "")
    (tmp_path / f"{request.param}.py").write_text(MODULE.format(name=name, digest=own), "utf-8")
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "rows.yaml").write_text(f"_target_: {request.param}.{name}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAWLS_MODULES", request.param)
    look_also_in([f"--config-dir={tmp_path / 'conf'}"])
    write_rows(tmp_path / "rows.csv", 0.25)
    yield [
        *("dataset=rows", "recipe=digits", "model=logistic", "algorithm=dpsgd", "schedule.batch_size=8"),
        *("schedule.max_steps=2", "schedule.evaluations=1", "tracking=off", f"data.root={tmp_path}"),
        f"results.root={tmp_path / 'results'}",
    ]
    look_also_in([])
    forget()


def write_rows(path: Path, first: float) -> None:
    path.write_text("".join(f"{first if row == 7 else row / 100:.2f},{row % 5 / 5},{row % 2}\n" for row in range(100)))


def forget() -> None:
    """As a new process would: what is told by its content is loaded once in each."""
    base._content_digest.cache_clear()


def test_an_edited_file_is_trained_anew_and_the_old_one_is_found_again(asked: list[str], tmp_path: Path) -> None:
    def trained() -> tuple[str, list[str]]:
        forget()
        config = resolve(compose(asked))
        return run_id(config), train([config], command="test").done

    first, done = trained()
    assert done == [first] and trained() == (first, [])
    write_rows(tmp_path / "rows.csv", 0.75)
    edited, done = trained()
    assert done == [edited] and edited != first
    assert (tmp_path / "results" / "runs" / first).is_dir()
    write_rows(tmp_path / "rows.csv", 0.25)
    assert trained() == (first, [])


def test_the_ledger_says_that_a_digest_of_the_data_is_published(asked: list[str], tmp_path: Path) -> None:
    (done,) = train([resolve(compose(asked))], command="test").done
    ledger = json.loads((tmp_path / "results" / "runs" / done / LEDGER).read_text("utf-8"))
    assert setup.DIGESTED in ledger["assumptions"]


def test_a_digest_that_is_insisted_on_is_compared(asked: list[str], tmp_path: Path) -> None:
    config = resolve(compose(asked))
    assert len(config["data_digest"]) == 64
    assert resolve(compose([*asked, f"data_digest={config['data_digest']}"])) == config
    assert Composer()(tuple(asked)) == config
    with pytest.raises(ConfigError, match="data_digest=abc is not that of the data under data.root="):
        compose([*asked, "data_digest=abc"])


def test_data_that_change_between_plan_and_training_are_refused(asked: list[str], tmp_path: Path) -> None:
    config = resolve(compose(asked))
    write_rows(tmp_path / "rows.csv", 0.5)
    forget()
    with pytest.raises(ValueError, match="changed since the run was asked for"):
        setup.load(config)


def test_what_cannot_be_loaded_yet_has_no_digest(asked: list[str], tmp_path: Path) -> None:
    forget()
    (tmp_path / "rows.csv").unlink()
    assert resolve(compose(asked))["data_digest"] is None


@pytest.mark.parametrize("dataset", ["digits", "unbalanced_mnist", "celeba", "bank_fraud"])
def test_pinned_and_simulated_data_add_nothing(dataset: str, tmp_path: Path) -> None:
    for provenance in ("real", "simulated"):
        chosen = [f"dataset={dataset}", f"dataset.provenance={provenance}", f"data.root={tmp_path}"]
        assert resolve(compose(chosen))["data_digest"] is None


def test_a_plan_reads_no_data(asked: list[str]) -> None:
    assert resolve(compose([*asked, "schedule.plan_only=true"]))["data_digest"] is None
