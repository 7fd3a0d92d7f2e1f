"""A small real store, trained once, and copies of it to damage."""

import shutil
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main

TARGET = "asc/table1"
WORDS = ["dataset=digits", "scale=smoke", "privacy=eps8", "model=logistic", "seed=0", "tracking=off"]
WORDS += ["algorithm=dpsgd,asc", "schedule.max_steps=3", "schedule.evaluations=1", "hydra.launcher.workers=1"]


def trained(folder: Path) -> Path:
    """The results folder of a table of two methods, drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["reproduce", TARGET, *WORDS]) == 0
    return folder / "results"


def copied(store: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(store, to))


def runs(store: Path) -> list[Path]:
    return sorted(path for path in (store / "runs").iterdir() if path.suffix == "")


def manifest(store: Path) -> Path:
    (found,) = store.rglob("manifest.json")
    return found


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
