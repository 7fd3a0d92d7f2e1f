"""Command lines of any words, in this process, where nothing is trained, fetched, served or sent."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rawls.analysis.pages.dashboard import serve
from rawls.datasets.core import base
from rawls.runners.cli import data
from rawls.runners.cli.commands import COMMANDS, main
from rawls.runners.schedule import launcher
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.tracking import wandb_sync, wandb_workspace
from tests.faults.stores import copied, runs
from tests.fuzz.cases import count, fuzzed
from tests.fuzz.words import ODD, overrides, values

KIND = "command lines"
HERE = "results.root=results"
SMALL = ["dataset=digits", "model=logistic", "scale=smoke", "tracking=off"]
# These train, measure for minutes or list everything: their words are read by the same code as the others'.
NOT_CALLED = {"audit", "bench", "targets", "sheet"}


@pytest.fixture(scope="module")
def place(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with results, in which the commands are called."""
    folder = tmp_path_factory.mktemp("place")
    copied(store, folder / "results")

    def nothing(*_: Any, **__: Any) -> Any:
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(launcher, "launch", lambda *_, **__: Outcome())
        patch.setattr(launcher, "preflight", nothing)
        patch.setattr("rawls.runners.process.lifecycle.prepare_process", nothing)
        patch.setattr("rawls.runners.train.result_of", lambda _: "done")
        patch.setattr(base, "obtain", nothing)
        patch.setattr(data, "obtain_weights", nothing)
        patch.setattr(serve, "_serve", lambda *_: 0)
        patch.setattr(wandb_workspace, "save", lambda *_: "nowhere")
        patch.setattr(wandb_sync, "main", lambda *_: 0)
        patch.setattr("rawls.datasets.core.base.Dataset.fetch", nothing)
        yield folder


def words_of(name: str, run: str) -> SearchStrategy[list[str]]:
    """What a command is given: mostly something that it knows."""
    any_words, odd = overrides(2), st.lists(values(), max_size=2)
    target = st.sampled_from(["asc/table1", "asc/tabel1", "asc", "../asc/table1", "asc/fig3", ""])
    match name:
        case "train":
            flags = [[], ["-m"], ["--cfg", "job"], ["--help"], ["--config-dir", "nowhere"], ["--nonsense"]]
            given = st.tuples(st.sampled_from(flags), any_words)
            return given.map(lambda both: [*both[0], "algorithm=dpsgd", *SMALL, *both[1]])
        case "reproduce" | "render":
            return st.tuples(target, any_words).map(lambda both: [both[0], *SMALL, "seed=0", "algorithm=asc", *both[1]])
        case "compare":
            side = st.sampled_from(["ASC", "DPSGD", "asc", "asc/table1", run, run[:3], "nothing", "", "a=b"])
            return st.tuples(side, side, any_words | odd).map(lambda all: [all[0], all[1], *all[2]])
        case "report":
            return st.tuples(target, odd).map(lambda both: [HERE, both[0], *both[1]])
        case "budget":
            number = st.sampled_from(["1", "0", "-1", "nan", "1e22", "10000", "x", "1" + 30 * "0", "0.5", "inf"])
            names = ["--epsilon", "--noise-multiplier", "--steps", "--batch", "--population", "--delta", "--accountant"]
            pairs = st.lists(st.tuples(st.sampled_from(names), number).map("=".join), max_size=6)
            return pairs | any_words.map(lambda words: ["algorithm=dpsgd", *SMALL, *words])
        case "data":
            named = st.sampled_from(["digits", "adult", "nothing", ""])
            return st.tuples(named, any_words).map(lambda both: [both[0], *both[1]])
        case "wandb" | "record":
            verb = st.sampled_from(["sync", "workspace", "take", "keep", "", "x"])
            return st.tuples(verb, odd).map(lambda both: [both[0], *both[1], HERE])
        case _:
            return (odd | any_words).map(lambda words: [HERE, *words])


def lines(run: str) -> SearchStrategy[list[str]]:
    called = [name for name in COMMANDS if name not in NOT_CALLED]
    known = st.sampled_from(called).flatmap(lambda name: words_of(name, run).map(lambda words: [name, *words]))
    return known | known | known | st.lists(st.sampled_from(ODD), max_size=3)


@fuzzed(0.08)
@given(data=st.data())
def test_any_line(place: Path, data: st.DataObject) -> None:
    """It ends with 0, 1 or 2; with 2 it has said one line, and nothing else is raised."""
    (run, *_) = runs(place / "results")
    line = data.draw(lines(run.name))
    code, said = called(line)
    assert code in (0, 1, 2), line
    assert Path.cwd() == place, line
    if code == 2:
        last = said.rstrip("\n").splitlines()[-1] if said.strip() else ""
        assert "error: " in last and "Traceback" not in said, (line, said)
    count(KIND, "refused in a sentence" if code == 2 else "accepted as it was meant")


def called(line: Sequence[str]) -> tuple[int, str]:
    """The exit code and what was said to stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(list(line))
        except SystemExit as ended:  # argparse's and Hydra's own
            code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else 2
    return code, said.getvalue()
